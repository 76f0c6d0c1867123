# Prints the verdict of a report: cmake -D FILE=report.json -D NAME=run -P verdict.cmake
# CMake reads JSON, and every machine that can build HalfScope has it.
file(READ ${FILE} report)
string(JSON state GET "${report}" verdict state)
string(JSON text GET "${report}" verdict text)
execute_process(COMMAND ${CMAKE_COMMAND} -E echo "${NAME}: ${state} - ${text}")
