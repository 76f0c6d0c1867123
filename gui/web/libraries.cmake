# Libraries for the preset `web`, in place of find_package(): Debian has them for the processor, but
# most are headers, which do for a browser as well.

# /usr/include itself would hide the headers of emscripten's C library, so the folders that are needed
# get links in a folder of ours.
set(headers ${PROJECT_BINARY_DIR}/headers)
file(MAKE_DIRECTORY ${headers})
# halfscope_web_headers(HEADER PACKAGE): makes the folder of a header available from the system.
function(halfscope_web_headers header package)
  get_filename_component(folder ${header} DIRECTORY)
  find_path(HALFSCOPE_WEB_${folder} ${header} PATHS /usr/include /usr/local/include PATH_SUFFIXES eigen3
    NO_CMAKE_FIND_ROOT_PATH)
  mark_as_advanced(HALFSCOPE_WEB_${folder})
  if(NOT HALFSCOPE_WEB_${folder})
    message(FATAL_ERROR "missing: ${header} (${package})")
  endif()
  file(CREATE_LINK ${HALFSCOPE_WEB_${folder}}/${folder} ${headers}/${folder} SYMBOLIC)
endfunction()
halfscope_web_headers(fmt/format.h libfmt-dev)
halfscope_web_headers(nlohmann/json.hpp nlohmann-json3-dev)
halfscope_web_headers(Eigen/Core libeigen3-dev)

foreach(name fmt::fmt nlohmann_json::nlohmann_json Eigen3::Eigen OpenMP::OpenMP_CXX)
  add_library(${name} INTERFACE IMPORTED GLOBAL)
endforeach()
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)
foreach(name fmt::fmt nlohmann_json::nlohmann_json Eigen3::Eigen)
  target_include_directories(${name} SYSTEM INTERFACE ${headers})
endforeach()

# Additions to emscripten's standard library, for all targets; omp.h for one thread is there, too.
include_directories(BEFORE SYSTEM ${PROJECT_SOURCE_DIR}/gui/web/standard)
add_compile_options(-Wno-unknown-pragmas)  # OpenMP's
# Exceptions of WebAssembly itself, which browsers have since 2022.
add_compile_options(-fwasm-exceptions)
add_link_options(-fwasm-exceptions -sALLOW_MEMORY_GROWTH=1)
# As for the processor; libraries that choose less say so.
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")
