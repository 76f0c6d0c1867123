/* SPDX-License-Identifier: MIT
 * HalfScope's numbers from C99: rounds values to fp16, measures them, and computes one product as
 * an H100 adds. Built with cc $(pkg-config --cflags --libs halfscope-c). */
#include <halfscope/halfscope.h>
#include <stdio.h>

static int failed(int code) {
  if (code != HALFSCOPE_OK) fprintf(stderr, "%s\n", halfscope_message());
  return code != HALFSCOPE_OK;
}

int main(void) {
  const float numbers[] = {0.1f, 65504.0f, 65520.0f, 2e-8f};
  float rounded[4];
  uint8_t flags[4];
  if (failed(halfscope_round("fp16", "nearest-even", 0, 4, numbers, rounded, flags))) return 1;
  for (int i = 0; i < 4; ++i) {
    printf("%g is %.9g in fp16%s\n", numbers[i], rounded[i],
           flags[i] & HALFSCOPE_OVERFLOW  ? ", an overflow"
           : flags[i] & HALFSCOPE_FLUSHED ? ", an underflow"
                                          : "");
  }

  halfscope_statistics statistics = {.struct_size = sizeof(statistics)};
  if (failed(halfscope_measure("fp16", NULL, 0, 4, numbers, &statistics))) return 1;
  printf("%d of %d overflow\n", (int)statistics.overflow, (int)statistics.n);

  /* 4096 + 1 + 1 + ... in fp16: every 1 is lost. */
  float ones[65], column[65], sum;
  for (int k = 0; k < 65; ++k) ones[k] = 1.0f, column[k] = k == 0 ? 4096.0f : 1.0f;
  if (failed(halfscope_matmul("format", "fp16", "fp16", 0, 1, 1, 65, ones, column, &sum))) return 1;
  printf("summed in fp16: %g", sum);
  const char* h100 = "tensor-core:h100";
  if (failed(halfscope_matmul(h100, "fp16", "fp16", 0, 1, 1, 65, ones, column, &sum))) return 1;
  printf(", by an H100: %g\n", sum);

  return halfscope_round("fp17", NULL, 0, 4, numbers, rounded, NULL) == HALFSCOPE_USAGE ? 0 : 1;
}
