# A project that finds the installed package with CMake: two of the examples, the add-on for GoogleTest, and C.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/cmake -B ${WORK_DIR} -G ${GENERATOR} -DCMAKE_C_COMPILER=${C}
    -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_FLAGS=${FLAGS} -DCMAKE_C_FLAGS=${FLAGS} -DCMAKE_PREFIX_PATH=${PREFIX}
    -DEXAMPLES=${SOURCE_DIR}/examples)
run(${CMAKE_COMMAND} --build ${WORK_DIR})
run(${WORK_DIR}/round 70000)
expect("fp16    inf +inexact overflow")
run(${WORK_DIR}/network)
expect("hidden.weight_grad +fp16")
run(${WORK_DIR}/kernel_test)
expect("PASSED")
run(${WORK_DIR}/from_c)
expect("by an H100: 4160")
