# A project that contains HalfScope (add_subdirectory, as FetchContent does) includes the same headers by the same
# names. Only what it needs is built.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/subdirectory -B ${WORK_DIR} -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_C_COMPILER=${C} -DCMAKE_CXX_FLAGS=${FLAGS} -DCMAKE_BUILD_TYPE=Release
    -DHALFSCOPE_SOURCE=${SOURCE_DIR} -DHALFSCOPE_CUDA=OFF)
run(${CMAKE_COMMAND} --build ${WORK_DIR} --target round kernel_test from_c)
run(${WORK_DIR}/round 70000)
expect("fp16    inf +inexact overflow")
run(${WORK_DIR}/kernel_test)
expect("PASSED")
run(${WORK_DIR}/from_c)
expect("by an H100: 4160")
# Our sources are not on the consumer's path, and its installation is its own.
file(READ ${WORK_DIR}/compile_commands.json commands)
string(REGEX MATCH "[^\n]*01_round_a_number.cpp[^\n]*" command "${commands}")
if(command STREQUAL "" OR "${command} " MATCHES "-I${SOURCE_DIR} ")
  message(FATAL_ERROR "includes the sources:\n${command}")
endif()
file(READ ${WORK_DIR}/cmake_install.cmake install)
if(install MATCHES "halfscope.pc")
  message(FATAL_ERROR "installs HalfScope, too")
endif()
