# Runs gpu_step_bench (PROGRAM) on BACKEND beside a stand-in for PyTorch that prints times, beside
# one whose torch.compile fails, and beside one that fails: then its error is printed once, and the other rows are all there.
file(MAKE_DIRECTORY ${FOLDER})
file(WRITE ${FOLDER}/works.sh "echo noise >&2\necho '{\"ms\": 2.5, \"bytes\": 1048576}'\n")
file(WRITE ${FOLDER}/fails.sh
  "echo Traceback >&2\necho \"ModuleNotFoundError: No module named 'torch'\" >&2\necho >&2\nexit 1\n")
file(WRITE ${FOLDER}/eager.sh "case \"$*\" in *'--compile 1'*) echo 'no compiler' >&2; exit 1;; esac\n"
  "echo '{\"ms\": 2.5, \"bytes\": 1048576}'\n")
function(run script)
  execute_process(COMMAND ${PROGRAM} --backends ${BACKEND} --models mlp:784-8-10 --plans
    float32,mixed_float16 --batch 8 --steps 5 --rounds 2 --python sh --torch-script
    ${FOLDER}/${script} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err)
  if(NOT code EQUAL 0 OR NOT err STREQUAL "")
    message(FATAL_ERROR "exit code ${code}\n${err}${out}")
  endif()
  foreach(plan float32 mixed_float16)
    foreach(step "${BACKEND}" "${BACKEND}, every 10th" "${BACKEND}, every step")
      if(NOT out MATCHES "\nmlp:784-8-10 +${plan} +${step} +[0-9]+\\.[0-9]+ +${ratio} ")
        message(FATAL_ERROR "no row \"${plan} ${step}\" with ${ratio} in\n${out}")
      endif()
    endforeach()
  endforeach()
  set(out "${out}" PARENT_SCOPE)
endfunction()

set(ratio "[0-9]+\\.[0-9]+")
run(works.sh)
if(NOT out MATCHES "\nmlp:784-8-10 +float32 +PyTorch +2\\.500 " OR out MATCHES "failed")
  message(FATAL_ERROR "no row of PyTorch in\n${out}")
endif()

if(NOT out MATCHES "\nmlp:784-8-10 +float32 +PyTorch compiled +2\\.500 +1\\.00 ")
  message(FATAL_ERROR "no row of torch.compile in\n${out}")
endif()

run(eager.sh)
string(REGEX MATCHALL "\ntorch.compile failed: no compiler\n" lines "${out}")
list(LENGTH lines count)
if(NOT count EQUAL 2 OR NOT out MATCHES "\nmlp:784-8-10 +float32 +PyTorch +2\\.500 " OR
    out MATCHES "PyTorch failed|PyTorch compiled")
  message(FATAL_ERROR "torch.compile's failure is not told in\n${out}")
endif()

set(ratio "-")
run(fails.sh)
string(REGEX MATCHALL "\nPyTorch failed: ModuleNotFoundError: No module named 'torch'\n" lines
  "${out}")
list(LENGTH lines count)
if(NOT count EQUAL 2)
  message(FATAL_ERROR "the error is there ${count} times, not once for each plan, in\n${out}")
endif()
if(NOT out MATCHES "\nPyTorch failed for 2 of 2 models and plans: nothing to compare with\n$")
  message(FATAL_ERROR "no summary in\n${out}")
endif()
run(none.sh)
if(NOT out MATCHES "\nPyTorch failed: [^\n]*none\\.sh")
  message(FATAL_ERROR "a script that is not there goes unnoticed in\n${out}")
endif()
