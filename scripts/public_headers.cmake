# Writes the headers that consumers include, as they are installed: OUT/halfscope/core/numeric/formats/round.h ...
# Our sources say "core/...", which is too general a name for a folder that many libraries share. The copies say
# "halfscope/core/..." instead. Consumers of a build tree get the same copies.
#   cmake -D SOURCE=... -D OUT=... -P public_headers.cmake
cmake_minimum_required(VERSION 3.25)

# Only the sources of the library include these.
set(internal "^(core/(c_api|onnx)/|emulation/(engine|gemm|measure)/|gpu/|analysis/(report/json_number|run_description|run_schema|shared_file|sqlite|step_rows|study/study_schema)\\.h)")
set(but "^(core/onnx/(import|export)\\.h|emulation/gemm/gemm\\.h|gpu/(backends|cuda_backend|device_info)\\.h|emulation/measure/(measure|format_losses)\\.h)$")

file(GLOB_RECURSE files RELATIVE ${SOURCE} ${SOURCE}/core/*.h ${SOURCE}/core/*.inc ${SOURCE}/emulation/*.h
     ${SOURCE}/gpu/*.h ${SOURCE}/analysis/*.h ${SOURCE}/analysis/*.inc)
set(public "")
foreach(file ${files})
  if(NOT file MATCHES "${internal}" OR file MATCHES "${but}")
    list(APPEND public ${file})
  endif()
endforeach()

# Shorter names for what consumers include directly: halfscope/halfscope.h and halfscope/testing/.
set(written "")
foreach(file ${public})
  file(READ ${SOURCE}/${file} text)
  string(REGEX MATCHALL "#include \"(core|emulation|gpu|analysis)/[^\"]+" includes "${text}")
  list(TRANSFORM includes REPLACE "^#include \"" "")
  foreach(include ${includes})
    if(NOT include IN_LIST public)
      message(FATAL_ERROR "${file} is public, but it includes ${include}, which is not "
        "(scripts/public_headers.cmake)")
    endif()
  endforeach()
  string(REGEX REPLACE "#include \"(core|emulation|gpu|analysis)/" "#include \"halfscope/\\1/"
         text "${text}")
  string(REPLACE "halfscope/core/testing/" "halfscope/testing/" text "${text}")
  string(REGEX REPLACE "^core/testing/" "testing/" file ${file})
  list(APPEND written ${file})
  set(before "")
  if(EXISTS ${OUT}/halfscope/${file})
    file(READ ${OUT}/halfscope/${file} before)
  endif()
  if(NOT text STREQUAL before)  # the time of a file decides what is compiled again
    file(WRITE ${OUT}/halfscope/${file} "${text}")
  endif()
endforeach()
file(COPY_FILE ${SOURCE}/core/c_api/halfscope.h ${OUT}/halfscope/halfscope.h ONLY_IF_DIFFERENT)

# Headers that were deleted or became internal.
file(GLOB_RECURSE others RELATIVE ${OUT}/halfscope ${OUT}/halfscope/*)
list(REMOVE_ITEM others ${written} halfscope.h)
foreach(file ${others})
  file(REMOVE ${OUT}/halfscope/${file})
endforeach()
