# run(COMMAND...): runs a command and fails with its output if it fails. The output is in run_output.
# Included by the scripts beside it, which ctest runs with BUILD_DIR, SOURCE_DIR, WORK_DIR, PREFIX, C, CXX, GENERATOR,
# FLAGS and VERSION.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed (${result}): ${command}\n${output}")
  endif()
  set(run_output "${output}" PARENT_SCOPE)
endfunction()

# expect(TEXT): fails unless the last output matches.
function(expect text)
  if(NOT run_output MATCHES "${text}")
    message(FATAL_ERROR "'${text}' is missing in:\n${run_output}")
  endif()
endfunction()

# Something left from an earlier run must not make this one pass.
file(REMOVE_RECURSE ${WORK_DIR})
file(MAKE_DIRECTORY ${WORK_DIR})
