# Programs that find the installed package with pkg-config: one that links every library, and one in C.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)
file(GLOB_RECURSE pc ${PREFIX}/*/halfscope.pc)
get_filename_component(folder "${pc}" DIRECTORY)
set(ENV{PKG_CONFIG_PATH} ${folder})
set(ENV{LD_LIBRARY_PATH} ${PREFIX}/lib)
run(pkg-config --modversion halfscope)
expect("^${VERSION}")

# options(NAME): the flags of a package as a list.
function(options name)
  run(pkg-config --cflags --libs ${name})
  string(STRIP "${run_output}" text)
  separate_arguments(text UNIX_COMMAND "${text}")
  set(flags ${text} PARENT_SCOPE)
endfunction()
options(halfscope)
run(${CXX} -std=c++20 ${FLAGS} ${SOURCE_DIR}/examples/06_onnx_network.cpp -o ${WORK_DIR}/network ${flags})
execute_process(COMMAND ${WORK_DIR}/network WORKING_DIRECTORY ${WORK_DIR} OUTPUT_VARIABLE run_output
                COMMAND_ERROR_IS_FATAL ANY)
expect("mixed_float16 is off by")
options(halfscope-c)
run(${C} -std=c99 -Wall -Wextra -Wpedantic -Werror ${FLAGS} ${SOURCE_DIR}/examples/09_from_c.c -o ${WORK_DIR}/from_c
    ${flags})
run(${WORK_DIR}/from_c)
expect("by an H100: 4160")
