# Installs the build into PREFIX, which the consumers use.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)
file(REMOVE_RECURSE ${PREFIX})
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${PREFIX})
foreach(wanted include/halfscope/core/numeric/formats/round.h include/halfscope/core/error.h
    include/halfscope/testing/gtest.h include/halfscope/halfscope.h bin/halfscope)
  if(NOT EXISTS ${PREFIX}/${wanted})
    message(FATAL_ERROR "not installed: ${wanted}")
  endif()
endforeach()
foreach(unwanted include/halfscope/analysis/sqlite.h include/halfscope/core/onnx/proto.h include/core
    include/halfscope/gui include/halfscope/cli)
  if(EXISTS ${PREFIX}/${unwanted})
    message(FATAL_ERROR "installed, but not public: ${unwanted}")
  endif()
endforeach()
run(${PREFIX}/bin/halfscope --version)
expect("${VERSION}")
