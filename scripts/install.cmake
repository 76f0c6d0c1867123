# Installation: the libraries with their headers as the CMake package HalfScope, and the program.
# A consumer writes
#   find_package(HalfScope REQUIRED)
#   target_link_libraries(app PRIVATE halfscope::halfscope_core)
# and includes headers the same way: #include "core/numeric/formats/round.h". tests/install is such a consumer.
# halfscope_options is not installed: our warning flags should not affect the consumer.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(halfscope_rooms core emulation gpu analysis)
set(halfscope_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/HalfScope)

foreach(room ${halfscope_rooms})
  install(TARGETS halfscope_${room} EXPORT HalfScopeTargets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${room}
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/halfscope
          FILES_MATCHING PATTERN "*.h")
endforeach()
install(TARGETS halfscope_measure halfscope_onnx EXPORT HalfScopeTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET halfscope)
  install(TARGETS halfscope RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET halfscope_view)
  install(TARGETS halfscope_view RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(EXPORT HalfScopeTargets NAMESPACE halfscope:: DESTINATION ${halfscope_package_dir})

# The libraries are static, so a consumer also has to find the libraries that they link privately.
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/HalfScopeConfig.cmake @ONLY CONTENT [[
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(OpenMP COMPONENTS CXX)
find_dependency(Eigen3 3.4 NO_MODULE)
find_dependency(ZLIB)
find_dependency(PkgConfig)
pkg_check_modules(libzip REQUIRED IMPORTED_TARGET libzip)
find_dependency(nlohmann_json 3.11)
find_dependency(fmt)
find_dependency(SQLite3)
find_dependency(Protobuf)
find_dependency(ONNX)
if("@HALFSCOPE_CUDA_FOUND@")
  find_dependency(CUDAToolkit)
endif()
include(${CMAKE_CURRENT_LIST_DIR}/HalfScopeTargets.cmake)
]])
# Before 1.0, a minor version may break compatibility.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/HalfScopeConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/HalfScopeConfig.cmake
              ${PROJECT_BINARY_DIR}/HalfScopeConfigVersion.cmake
        DESTINATION ${halfscope_package_dir})
