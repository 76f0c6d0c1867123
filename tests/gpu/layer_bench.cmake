# Runs gpu_layer_bench (PROGRAM) on the emulator: a row for every product, none without numbers, and
# one clear error for what it cannot do.
function(run)
  execute_process(COMMAND ${PROGRAM} ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE out
    ERROR_VARIABLE err)
  set(code "${code}" PARENT_SCOPE)
  set(out "${out}" PARENT_SCOPE)
  set(err "${err}" PARENT_SCOPE)
endfunction()

run(--backends emulated --models mlp:12-8-10 --batch 4 --rounds 1 --ms 0.1)
if(NOT code EQUAL 0 OR NOT err STREQUAL "")
  message(FATAL_ERROR "exit code ${code}\n${err}")
endif()
set(cell "\\| *[0-9]+\\.[0-9]+ +[0-9]+\\.[0-9]+ +[0-9]+\\.[0-9]+ *")
foreach(row
    "fc1 +forward +\\[4, 12\\] \\[8, 12\\]" "fc2 +forward +\\[4, 8\\] \\[10, 8\\]"
    "fc2 +grad_weight +\\[4, 10\\] \\[4, 8\\]" "fc2 +grad_input +\\[4, 10\\] \\[10, 8\\]"
    "fc1 +grad_weight +\\[4, 8\\] \\[4, 12\\]" "all")
  if(NOT out MATCHES "\n${row} +${cell}${cell}${cell}\n")
    message(FATAL_ERROR "no row \"${row}\" in\n${out}")
  endif()
endforeach()
string(REGEX MATCHALL "\n(fc|all)" rows "${out}")
list(LENGTH rows count)
if(NOT count EQUAL 6)
  message(FATAL_ERROR "${count} rows instead of 6 in\n${out}")
endif()

foreach(bad "--backends;none" "--models;none" "--plans;none" "--plans;fp8_current")
  run(--backends emulated --models mlp:12-8-10 --batch 4 ${bad})
  string(REGEX MATCHALL "\n" lines "${err}")
  list(LENGTH lines count)
  if(NOT code EQUAL 3 OR NOT count EQUAL 1 OR NOT err MATCHES "^gpu_layer_bench: ")
    message(FATAL_ERROR "${bad}: exit code ${code}\n${err}")
  endif()
endforeach()
run(--batch zero)
if(NOT code EQUAL 2)
  message(FATAL_ERROR "--batch zero: exit code ${code}")
endif()
