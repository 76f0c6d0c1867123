# Installation: the program, the libraries with their headers as the CMake package HalfScope, and files for pkg-config.
#   find_package(HalfScope REQUIRED)
#   target_link_libraries(app PRIVATE halfscope::halfscope_core)    # also halfscope_analysis, halfscope_c, gtest ...
# Consumers include headers as in examples/: #include "halfscope/core/numeric/formats/round.h" (public_headers.cmake).
# halfscope_options is not installed: our warning flags should not affect the consumer. tests/install has consumers.
include(CMakePackageConfigHelpers)
set(libraries halfscope_analysis halfscope_onnx halfscope_emulation halfscope_gpu halfscope_measure halfscope_core)
set(halfscope_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/HalfScope)

install(TARGETS ${libraries} halfscope_gtest EXPORT HalfScopeTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT program NAMELINK_COMPONENT development)
install(TARGETS halfscope_c EXPORT HalfScopeTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT program NAMELINK_COMPONENT development)
install(DIRECTORY ${HALFSCOPE_HEADERS}/halfscope DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(TARGETS halfscope RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
if(HALFSCOPE_MPI_MODULES)
  install(TARGETS ${HALFSCOPE_MPI_MODULES} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/halfscope COMPONENT mpi)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/halfscope RENAME copyright
        COMPONENT program)
if(TARGET halfscope_view)
  install(TARGETS halfscope_view RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT viewer)
endif()
install(EXPORT HalfScopeTargets NAMESPACE halfscope:: DESTINATION ${halfscope_package_dir} COMPONENT development)

# The libraries are static, so a consumer also has to find the libraries that they link privately.
set(with_cuda OFF)
if(TARGET halfscope_cuda)
  set(with_cuda ON)
endif()
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
if(@with_cuda@)
  find_dependency(CUDAToolkit)
endif()
# The add-on for GoogleTest: find_package(HalfScope REQUIRED COMPONENTS gtest).
foreach(component ${HalfScope_FIND_COMPONENTS})
  if(component STREQUAL "gtest")
    if(NOT TARGET GTest::gmock)
      find_dependency(GTest)
    endif()
  else()
    set(HalfScope_FOUND FALSE)
    set(HalfScope_NOT_FOUND_MESSAGE "HalfScope has no component '${component}'; the only one is gtest")
    return()
  endif()
endforeach()
include(${CMAKE_CURRENT_LIST_DIR}/HalfScopeTargets.cmake)
]])
# Before 1.0, a minor version may break compatibility.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/HalfScopeConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/HalfScopeConfig.cmake
              ${PROJECT_BINARY_DIR}/HalfScopeConfigVersion.cmake
        DESTINATION ${halfscope_package_dir} COMPONENT development)

# For pkg-config: halfscope has the C++ libraries and all that they link, halfscope-c the C interface. Paths are
# relative to the file, so that the installation can be moved.
list(TRANSFORM libraries PREPEND -l OUTPUT_VARIABLE link)
list(JOIN link " " link)
set(cuda_link "")
if(with_cuda)
  find_package(CUDAToolkit REQUIRED)  # the folder gpu/ found it, but its variables stay there
  get_filename_component(cuda_folder "${CUDAToolkit_LIBRARY_DIR}" ABSOLUTE)
  set(cuda_link " -L${cuda_folder} -lcudart_static -lrt -ldl")
endif()
file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/halfscope.pc @ONLY CONTENT [[
prefix=${pcfiledir}/@up@
libdir=${prefix}/@CMAKE_INSTALL_LIBDIR@
includedir=${prefix}/@CMAKE_INSTALL_INCLUDEDIR@

Name: HalfScope
Description: @PROJECT_DESCRIPTION@
Version: @PROJECT_VERSION@
Requires: zlib, libzip, fmt, sqlite3, protobuf
Cflags: -I${includedir} -ffp-contract=off
Libs: -L${libdir} @link@ -lonnx_proto @OpenMP_CXX_FLAGS@@cuda_link@
]])
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/halfscope-c.pc @ONLY CONTENT [[
prefix=${pcfiledir}/@up@
libdir=${prefix}/@CMAKE_INSTALL_LIBDIR@
includedir=${prefix}/@CMAKE_INSTALL_INCLUDEDIR@

Name: HalfScope for C
Description: Numbers in reduced precision: rounding, ulps, statistics and products
Version: @PROJECT_VERSION@
Cflags: -I${includedir}
Libs: -L${libdir} -lhalfscope_c
]])
install(FILES ${PROJECT_BINARY_DIR}/halfscope.pc ${PROJECT_BINARY_DIR}/halfscope-c.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

# Debian packages: `cpack` in the build folder writes halfscope, halfscope-viewer and halfscope-dev.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME halfscope)
set(CPACK_PACKAGE_CONTACT "The HalfScope authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)
set(CPACK_COMPONENTS_ALL program development)
if(TARGET halfscope_view)
  list(APPEND CPACK_COMPONENTS_ALL viewer)
endif()
if(HALFSCOPE_MPI_MODULES)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
endif()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # dependencies by dpkg-shlibdeps
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME halfscope)
set(CPACK_DEBIAN_VIEWER_PACKAGE_NAME halfscope-viewer)
set(CPACK_DEBIAN_VIEWER_PACKAGE_DEPENDS "halfscope (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_MPI_PACKAGE_NAME halfscope-mpi)
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "halfscope (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME halfscope-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "halfscope (= ${PROJECT_VERSION}), pkg-config, libeigen3-dev, zlib1g-dev, \
libzip-dev, nlohmann-json3-dev, libfmt-dev, libsqlite3-dev, libprotobuf-dev, protobuf-compiler, libonnx-dev")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS libgmock-dev)
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "Command line and the C library")
set(CPACK_COMPONENT_VIEWER_DESCRIPTION "Desktop viewer")
set(CPACK_COMPONENT_MPI_DESCRIPTION "Modules for Open MPI and MPICH")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "C++ libraries, headers, and files for CMake and pkg-config")
include(CPack)
