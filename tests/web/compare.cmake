# Runs web_numbers on the processor (PROGRAM) and in Node (NODE SCRIPT); the outputs must be equal.
if(NOT EXISTS ${PROGRAM})
  message(FATAL_ERROR "missing: ${PROGRAM}; scripts/web builds it")
endif()
execute_process(COMMAND ${PROGRAM} OUTPUT_FILE ${FOLDER}/numbers.processor ERROR_FILE ${FOLDER}/times.processor
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${NODE} ${SCRIPT} OUTPUT_FILE ${FOLDER}/numbers.web ERROR_FILE ${FOLDER}/times.web
  COMMAND_ERROR_IS_FATAL ANY)
foreach(where processor web)
  file(STRINGS ${FOLDER}/numbers.${where} ${where})
endforeach()
list(LENGTH web count)
if(NOT processor STREQUAL web OR count EQUAL 0)
  execute_process(COMMAND diff ${FOLDER}/numbers.processor ${FOLDER}/numbers.web)
  message(FATAL_ERROR "WebAssembly computes other numbers than the processor, see above")
endif()
message("${count} lines are the same")
