# Runs an oracle's own test with PYTHON if that can import MODULES, else says "skipped: why".
execute_process(COMMAND ${PYTHON} -c "import ${MODULES}" RESULT_VARIABLE missing OUTPUT_QUIET ERROR_QUIET)
if(missing)
  message("skipped: ${PYTHON} has no ${MODULES}")
  return()
endif()
# -B: leave no compiled modules in the source tree.
execute_process(COMMAND ${PYTHON} -B ${ARGUMENTS} WORKING_DIRECTORY ${FOLDER} RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "${ARGUMENTS} ended with ${failed}")
endif()
