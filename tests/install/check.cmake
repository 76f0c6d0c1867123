# Installs the build in BUILD_DIR into a new prefix, then configures, builds and runs the consumer
# there with nothing but that prefix to find HalfScope in. Run by ctest as
#   cmake -D BUILD_DIR=... -D WORK_DIR=... -D CXX=... -D GENERATOR=... [-D CXX_FLAGS=...]
#         -P check.cmake

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed (${result}): ${command}\n${output}")
  endif()
  set(run_output "${output}" PARENT_SCOPE)
endfunction()

# Something left from an earlier run must not make this one pass.
file(REMOVE_RECURSE ${WORK_DIR})
set(prefix ${WORK_DIR}/prefix)
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})
foreach(wanted core/numeric/formats/round.h core/error.h emulation/isa.h gpu/device_info.h)
  if(NOT EXISTS ${prefix}/include/halfscope/${wanted})
    message(FATAL_ERROR "not installed: include/halfscope/${wanted}")
  endif()
endforeach()

run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/consumer -B ${WORK_DIR}/build -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_FLAGS=${CXX_FLAGS} -DCMAKE_PREFIX_PATH=${prefix})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
run(${WORK_DIR}/build/consumer)
if(NOT run_output MATCHES "70000 in fp16 is inf")
  message(FATAL_ERROR "the consumer printed: ${run_output}")
endif()
file(REMOVE_RECURSE ${WORK_DIR})
