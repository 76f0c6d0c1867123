# Runs web_numbers without vector instructions on one thread, and as usual; the outputs must be
# equal.
execute_process(COMMAND ${CMAKE_COMMAND} -E env HALFSCOPE_ISA=baseline OMP_NUM_THREADS=1 ${PROGRAM} 20000
  OUTPUT_VARIABLE baseline ERROR_VARIABLE times COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${PROGRAM} 20000
  OUTPUT_VARIABLE own ERROR_VARIABLE times COMMAND_ERROR_IS_FATAL ANY)
if(baseline STREQUAL "" OR NOT baseline STREQUAL own)
  message(FATAL_ERROR "the numbers depend on the instruction set or the threads:\n${baseline}\n${own}")
endif()
