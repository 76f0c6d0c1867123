// SPDX-License-Identifier: MIT
// Steps of products that a library computes: operands are stored as it requires, it writes the
// sums, and one of our bodies finishes them. The call's `kernel` receives the library and its
// choices, or the reason why none is used.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "gpu/bodies/batch_operands.h"
#include "gpu/bodies/library_operands.h"
#include "gpu/engine/node_call.h"
#include "gpu/libraries/product_library.h"

namespace halfscope::gpu {

/// Memory that all products of a program use, one after another.
class Scratch {
 public:
  /// Requests memory. Call it while steps are being made.
  void need(int64_t bytes) { bytes_ = std::max(bytes_, bytes); }
  int64_t bytes() const { return bytes_; }

  std::byte* memory = nullptr;  ///< set before steps run

 private:
  int64_t bytes_ = 0;
};

/// Context of a call whose product a library may compute.
struct LibraryCall {
  ProductLibrary* library = nullptr;
  Scratch* scratch = nullptr;
};

/// Up to this many calls are cheaper than copying the operands for one call.
inline constexpr size_t kFewCalls = 8;

/// Offsets of operands and sums in the scratch memory.
struct ScratchPlaces {
  int64_t a = 0, b = 0, sums = 0, end = 0;

  static ScratchPlaces of(int64_t a_bytes, int64_t b_bytes, int64_t sum_bytes) {
    const auto after = [](int64_t place, int64_t bytes) {
      return (place + bytes + 255) / 256 * 256;
    };
    ScratchPlaces places;
    places.b = after(0, a_bytes);
    places.sums = after(places.b, b_bytes);
    places.end = after(places.sums, sum_bytes);
    return places;
  }
};

/// Returns the format that the library writes: fp32, or in fast mode the format to which the output
/// is rounded anyway, if nothing but a bias that the library adds comes before that rounding.
template <class X>
Storage result_storage(const NodeCall<X, float>& c, const Epilogue<float>& epilogue,
                       Storage operands, bool adds_bias = false) {
  const Value& value = c.graph->value(c.node->outputs[0]);
  const bool plain = (epilogue.bias == nullptr || adds_bias) && !epilogue.scaled &&
                     value.rounding.mode == RoundingMode::nearest_even;
  const bool narrow = bytes_of(operands) == 2 && value.format == format_of(operands);
  return c.libraries->library->fast() && plain && narrow ? operands : Storage::fp32;
}

/// Returns whether the library can add the bias: one per column of a single product, stored like
/// the output. It adds in fp32 and then rounds once, as our own bodies do.
inline bool library_adds_bias(const GemmSource<float>& source, const Epilogue<float>& epilogue,
                              Storage operands) {
  const bool per_column = source.bias_row == 0 && (source.bias_column == 1 || source.n == 1);
  return !(epilogue.bias == nullptr) && !epilogue.scaled && source.count == 1 && per_column &&
         epilogue.bias.storage() == operands;
}

/// Returns whether the library's sums are already the outputs, in unrounded memory.
template <class Results>
bool sums_are_results(const Results& y, const Epilogue<float>& epilogue, const RunState& state) {
  const bool as_summed = epilogue.bias == nullptr && !epilogue.scaled;
  return as_summed && (state.measured || !y.stores());
}

/// Makes the step of products whose operands are read in place. Sums go directly to the output, in
/// 16 bits or unrounded. Recorded steps make the same calls, and measure what the library rounded.
template <class X>
Step in_place_step(const NodeCall<X, float>& c, const GemmSource<float>& source,
                   const Epilogue<float>& epilogue, const InPlacePlan& plan,
                   std::shared_ptr<LibraryProduct> product) {
  X& executor = *c.executor;
  const bool narrow = bytes_of(plan.matrix.d.storage) == 2;
  Epilogue<float> rest = epilogue;
  if (plan.matrix.bias != nullptr) rest.bias = nullptr;  // the library has added it
  return [&executor, source, rest, narrow, calls = plan.calls, product](const RunState& state) {
    const Destination to = source.y.destination();
    float* const exact = source.y.exact();
    for (const BatchOffset& at : calls) {
      const void* const x = (source.x + at.a).memory();
      const void* const w = (source.w + at.b).memory();
      void* const result = narrow ? (to + at.d).memory : exact + at.d;
      executor.enqueue([product, x, w, result] { product->run(x, w, result); });
    }
    if (narrow ? !state.measured : sums_are_results(source.y, rest, state)) return;
    const In<float> made = narrow ? In<float>(to.memory, to.storage) : In<float>(exact);
    const int64_t n = source.count * source.m * source.n;
    executor.items(items_of_several(n), FinishRows{rest, made, source.y, n, source.n, source.k,
                                                   source.bias_row, source.bias_column, 0});
  };
}

/// Makes the step of products whose operands are copied first, as many at a time as the plan has.
template <class X, class Source>
Step packed_step(const NodeCall<X, float>& c, const Source& source, const Epilogue<float>& epilogue,
                 const PackedPlan& plan, std::shared_ptr<LibraryProduct> product) {
  const MatrixPlan& matrix = plan.matrix;
  const Storage a = matrix.second.storage, b = matrix.first.storage, d = matrix.d.storage;
  const int64_t a_count = plan.a_lines * plan.pitch, b_count = plan.b_lines * plan.pitch;
  const int64_t count = matrix.count;
  const ScratchPlaces at = ScratchPlaces::of(count * a_count * bytes_of(a),
                                             count * b_count * bytes_of(b), plan.sum_bytes());
  c.libraries->scratch->need(at.end);
  X& executor = *c.executor;
  const Scratch* const scratch = c.libraries->scratch;
  return [&executor, scratch, source, epilogue, plan, product, at, a_count, b_count, count, a, b,
          d](const RunState&) {
    std::byte* const memory = scratch->memory;
    std::byte *const first = memory + at.a, *const second = memory + at.b;
    std::byte* const sums = memory + at.sums;
    const PackLines<Source, true> pack_a{source, first, plan.pitch, a};
    const PackLines<Source, false> pack_b{source, second, plan.pitch, b};
    const FinishMatrix<Source> finish{source, epilogue, In<float>(sums, d), plan.d_pitch};
    const auto multiply = [product, first, second, sums] { product->run(first, second, sums); };
    const int64_t results = source.m * source.n;
    if constexpr (std::is_same_v<Source, GemmSource<float>>) {
      for (int64_t p = 0; p < source.count; p += count) {
        // All calls take as many products: the last one may repeat some of the one before.
        const int64_t from = std::min(p, source.count - count);
        executor.items(count * a_count, PackProducts<Source, true>{pack_a, a_count, from});
        executor.items(count * b_count, PackProducts<Source, false>{pack_b, b_count, from});
        executor.enqueue(multiply);
        executor.items(count * results,
                       FinishProducts<Source>{finish, results, from, plan.matrix.d.stride});
      }
    } else {
      executor.items(a_count, pack_a);
      executor.items(b_count, pack_b);
      executor.enqueue(multiply);
      executor.items(results, finish);
    }
  };
}

/// One operand of a convolution as its step hands it to the library: where it is, or copied to
/// scratch memory in the storage and order that the plan wants.
struct ConvOperand {
  ChannelsLast copy;
  bool in_place;
  int64_t bytes;  ///< of the copy

  const void* memory(const Scratch& scratch, int64_t place) const {
    return in_place ? copy.x.memory() : scratch.memory + place;
  }
};

/// Turns the channels of a tensor with these sizes, or copies it as it is (as if it had one).
inline ChannelTiles channel_tiles(const TensorPlan& of, int64_t elements, bool turns) {
  const int64_t channels = turns ? of.size[1] : 1, pixels = turns ? of.size[2] * of.size[3] : 1;
  return ChannelTiles(elements / std::max<int64_t>(channels * pixels, 1), channels, pixels);
}

/// Returns whether channels second and channels last are different orders of such a tensor.
inline bool has_two_orders(const TensorPlan& plan) {
  return plan.size[1] > 1 && plan.size[2] * plan.size[3] > 1;
}

/// `turns`: the library reads channels last, and the operand has the order of ONNX.
inline ConvOperand conv_operand(const In<float>& x, const TensorPlan& plan, int64_t elements,
                                bool turns) {
  const bool stored_so =
      bytes_of(plan.storage) == 4 ? bytes_of(x.storage()) == 4 : x.storage() == plan.storage;
  const bool in_place = stored_so && !(turns && has_two_orders(plan));
  return {{x, nullptr, plan.storage, channel_tiles(plan, elements, turns)},
          in_place,
          in_place ? 0 : elements * bytes_of(plan.storage)};
}

/// Makes the step of one of a convolution's three products. Operands are copied if they are not
/// stored as the plan wants them; sums go directly to the output if they are the output.
template <class X>
Step convolution_step(const NodeCall<X, float>& c, const Epilogue<float>& epilogue,
                      const ConvPlan& plan, std::shared_ptr<LibraryProduct> product) {
  const bool forward = plan.product == ConvProduct::forward;
  const TensorPlan& a = forward ? plan.x : plan.y;
  const TensorPlan& b = plan.product == ConvProduct::grad_weight ? plan.x : plan.w;
  const TensorPlan& made = plan.made();
  const int64_t count = c.out_count(0), pixels = made.size[2] * made.size[3];
  const ConvOperand first =
      conv_operand(c.in[0], a, c.in_count(0), plan.channels_last && !c.last_in(0));
  const ConvOperand second =
      conv_operand(c.in[1], b, c.in_count(1), plan.channels_last && !c.last_in(1));
  const bool turns = plan.channels_last && !c.last_out(0) && has_two_orders(made);
  const Out<float> y = c.out[0];
  // A copy in the narrow format can be written at once; recorded steps measure it afterwards.
  const bool as_summed = epilogue.bias == nullptr && !epilogue.scaled;
  const bool stores_sums = !turns && as_summed && y.stores_now() && bytes_of(made.storage) == 2 &&
                           y.destination().storage == made.storage;
  const bool exact_sums = !turns && bytes_of(made.storage) == 4;
  const ScratchPlaces at = ScratchPlaces::of(
      first.bytes, second.bytes, stores_sums || exact_sums ? 0 : count * bytes_of(made.storage));
  c.libraries->scratch->need(at.end);
  c.kernel->channels_last = plan.channels_last;
  X& executor = *c.executor;
  const Scratch* const scratch = c.libraries->scratch;
  // With channels last, neighbours have different biases.
  const bool last = c.last_out(0);
  const int64_t channels = forward ? made.size[1] : 1;
  const FinishPlanes in_order{.epilogue = epilogue,
                              .sums = nullptr,
                              .y = y,
                              .elements = count,
                              .per_bias = last || !forward ? 1 : pixels,
                              .biases = channels};
  const FinishChannelsLast turned{epilogue, nullptr, y, channel_tiles(made, count, true)};
  return [&executor, scratch, first, second, in_order, turned, product, at, count, turns,
          stores_sums, exact_sums, result = made.storage](const RunState& state) {
    for (const auto& [operand, place] : {std::pair{&first, at.a}, std::pair{&second, at.b}}) {
      if (operand->in_place) continue;
      ChannelsLast copy = operand->copy;
      copy.to = scratch->memory + place;
      executor.blocks(copy);
    }
    const void *const x = first.memory(*scratch, at.a), *const w = second.memory(*scratch, at.b);
    void* const sums = stores_sums  ? in_order.y.destination().memory
                       : exact_sums ? static_cast<void*>(in_order.y.exact())
                                    : static_cast<void*>(scratch->memory + at.sums);
    executor.enqueue([product, x, w, sums] { product->run(x, w, sums); });
    if (stores_sums) return;
    if (turns) {
      FinishChannelsLast now = turned;
      now.sums = In<float>(sums, result);
      executor.blocks(now);
    } else if (!exact_sums || !sums_are_results(in_order.y, in_order.epilogue, state)) {
      FinishPlanes now = in_order;
      now.sums = In<float>(sums, result);
      executor.items(items_of_several(count), now);
    }
  };
}

/// Returns which convolution a source of terms is, or nothing for a matrix product.
template <class Source>
std::optional<ConvProduct> conv_product_of() {
  if (std::is_same_v<Source, ConvSource<float>>) return ConvProduct::forward;
  if (std::is_same_v<Source, ConvGradInputSource<float>>) return ConvProduct::grad_input;
  if (std::is_same_v<Source, ConvGradWeightSource<float>>) return ConvProduct::grad_weight;
  return std::nullopt;
}

/// Returns whether the operands are values of the formats that the node reads. Operands scaled by
/// block are not: they are codes times their scales.
template <class X>
bool operands_are_as_read(const NodeCall<X, float>& c) {
  for (size_t i = 0; i < 2; ++i) {
    const FloatFormat read = read_format(*c.graph, *c.node, i).without_options();
    if (!read.contains(c.graph->value(c.node->inputs[i]).format.without_options())) return false;
  }
  return true;
}

/// Returns the levels of a batch, innermost first: where the strides of an operand change.
inline std::vector<BatchLevel> levels_of(const GemmSource<float>& source) {
  // The products from number `from` on that are equally far apart, and how far.
  struct Run {
    int64_t size, stride;
  };
  const auto run_from = [](const Strided& batch, int64_t from) {
    int64_t below = 1;
    for (int d = batch.rank - 1; d >= 0; --d) {
      const int64_t all = below * batch.size[d];
      if (from < all) return Run{all / from, batch.stride[d] * (from / below)};
      below = all;
    }
    return Run{1, 0};
  };
  std::vector<BatchLevel> levels;
  const int64_t one = source.m * source.n;
  for (int64_t from = 1; from < source.count;) {
    const Run a = run_from(source.a_batch, from), b = run_from(source.b_batch, from);
    const int64_t size = std::min(a.size, b.size);  // one divides the other: dimensions of a shape
    BatchLevel* const last = levels.empty() ? nullptr : &levels.back();
    if (last != nullptr && a.stride == last->a * last->size && b.stride == last->b * last->size) {
      last->size *= size;
    } else {
      levels.push_back({size, a.stride, b.stride, from * one});
    }
    from *= size;
  }
  return levels;
}

/// Returns a plan for operands that are already stored in the format in which they are multiplied.
/// Returns nothing if they are not, or if narrow ones have lines or matrices that do not start on
/// 16 bytes.
inline std::optional<InPlacePlan> plan_as_it_lies(const GemmSource<float>& source,
                                                  const Epilogue<float>& epilogue, Storage a,
                                                  Storage b, Storage result, int64_t d_pitch = 0) {
  const auto lies_as = [](const In<float>& x, Storage storage) {
    return bytes_of(storage) == 4 ? bytes_of(x.storage()) == 4 : x.storage() == storage;
  };
  if (!lies_as(source.x, a) || !lies_as(source.w, b)) return std::nullopt;
  if (source.count > 1 && source.bias_row != 0) return std::nullopt;  // the rows of all are counted
  const bool stores = source.y.stores() && source.y.destination().storage == result;
  std::optional<InPlacePlan> plan = plan_batch_in_place(
      source.m, source.n, source.k, {source.a_row, source.a_column, source.b_row, source.b_column},
      levels_of(source), a, b, stores ? result : Storage::fp32, d_pitch);
  if (plan && bytes_of(plan->matrix.d.storage) == 2) plan->matrix.bias = epilogue.bias.memory();
  return plan;
}

/// Item = row * pitch + column: a 16-bit matrix with padded rows. Padding becomes zeros.
struct PadRows {
  In<float> x;
  Destination to;
  int64_t columns;
  Divisor pitch;

  HS_HD void operator()(int64_t item) const {
    const int64_t row = item / pitch, column = item - row * pitch;
    to.store(item, column < columns ? x[row * columns + column] : 0.0f);
  }
};

/// Replaces a 16-bit matrix by a copy with further rows of zeros, and returns the step that copies.
/// Products of padded rows take their padding along, too: with 50257 columns or terms, two of them
/// took 7.4 and 4.8 ms on an H200, a third of the same size with aligned ones 1.4 ms.
template <class X>
Step with_zero_rows(const NodeCall<X, float>& c, In<float>& matrix, int64_t rows,
                    int64_t padded_rows, int64_t columns) {
  const auto bytes_of_rows = [&](int64_t n) {
    return static_cast<size_t>(n * columns * bytes_of(matrix.storage()));
  };
  void* const copy = c.executor->allocate(bytes_of_rows(padded_rows));  // zeros
  const void* const from = matrix.memory();
  matrix = In<float>(copy, matrix.storage());
  return [&executor = *c.executor, copy, from, bytes = bytes_of_rows(rows)](const RunState&) {
    executor.copy(copy, from, bytes);
  };
}

/// Makes the step of a product that writes padded rows (padded_rows.h), or returns nothing if the
/// library cannot write them. A recorded step then finishes them as if they were its sums.
template <class X>
Step padded_rows_step(const NodeCall<X, float>& c, const GemmSource<float>& source,
                      const SumSpec& spec, const Epilogue<float>& epilogue) {
  const std::optional<Storage> a = storage_of(spec.read), b = storage_of(spec.b_format());
  if (!operands_are_as_read(c) || !cannot_multiply(a, b).empty()) return {};
  if (spec.accumulation != Accumulation::fp32 || source.count != 1) return {};
  const Storage result = result_storage(c, epilogue, *a);
  if (bytes_of(result) != 2 || !(epilogue.bias == nullptr)) return {};
  GemmSource<float> wide = source;
  Step copy;
  if (source.b_row == 1 && source.b_column == source.k && source.w.storage() == *b) {
    copy = with_zero_rows(c, wide.w, source.n, c.out_rows.pitch, source.k);
    wide.n = c.out_rows.pitch;
  }
  const std::optional<InPlacePlan> plan =
      plan_as_it_lies(wide, epilogue, *a, *b, result, c.out_rows.pitch);
  if (!plan || plan->matrix.d.storage != result) return {};
  std::string why;
  const std::shared_ptr<LibraryProduct> product = c.libraries->library->matrix(plan->matrix, why);
  if (product == nullptr) return {};
  *c.kernel = {product->text(), true};
  X& executor = *c.executor;
  const PaddedRows rows = c.out_rows;
  const FinishMatrix<GemmSource<float>> finish{source, epilogue, In<float>(rows.memory, result),
                                               rows.pitch};
  return [&executor, copy, wide, source, product, rows, finish,
          plain = c.is_plain](const RunState& state) {
    if (copy) copy(state);
    const void *const x = wide.x.memory(), *const w = wide.w.memory();
    executor.enqueue([product, x, w, to = rows.memory] { product->run(x, w, to); });
    if (!plain) executor.items(source.m * source.n, finish);
  };
}

/// Makes the step of a library, or returns nothing and sets `kernel` to the reason. `spec` has its
/// operands in the order of Source::a and Source::b.
template <class X, class Source>
Step library_step(const NodeCall<X, float>& c, const Source& source, const SumSpec& spec,
                  const Epilogue<float>& epilogue) {
  std::string why;
  const auto found = [&](const std::shared_ptr<LibraryProduct>& product) {
    if (product != nullptr) *c.kernel = {product->text(), true};
    return product != nullptr;
  };
  ProductLibrary& library = *c.libraries->library;
  std::optional<Storage> a = storage_of(spec.read), b = storage_of(spec.b_format());
  if (!operands_are_as_read(c)) a = b = Storage::fp32;
  why = cannot_multiply(a, b);
  if (spec.accumulation != Accumulation::fp32) why = "no library has this accumulation";
  if (source.count == 0 || source.m == 0 || source.n == 0 || source.k == 0) {
    why = "the product is empty";
  }
  if (!why.empty()) {
    c.kernel->text = "own kernel: " + why;
    return {};
  }
  const Storage result = result_storage(c, epilogue, *a);
  std::optional<InPlacePlan> in_place;
  const auto step_in_place = [&]() -> Step {
    if constexpr (std::is_same_v<Source, GemmSource<float>>) {
      const std::shared_ptr<LibraryProduct> product = library.matrix(in_place->matrix, why);
      const size_t calls = in_place->calls.size();
      if (!found(product)) return {};
      if (calls > 1) c.kernel->text += ", " + std::to_string(calls) + " calls";
      return in_place_step(c, source, epilogue, *in_place, product);
    }
    return {};
  };
  if constexpr (std::is_same_v<Source, GemmSource<float>>) {
    const Storage with_bias =
        result_storage(c, epilogue, *a, library_adds_bias(source, epilogue, *a));
    for (const Storage each : {with_bias, result}) {
      in_place = plan_as_it_lies(source, epilogue, *a, *b, each);
      if (!in_place || in_place->calls.size() > kFewCalls) break;
      if (Step step = step_in_place()) return step;
      in_place.reset();
      if (with_bias == result) break;
    }
  } else if (bytes_of(*a) > 1) {
    const auto is_narrow = [](const In<float>& x) { return bytes_of(x.storage()) < 4; };
    const bool copied = is_narrow(c.in[0]) || is_narrow(c.in[1]);
    for (const ConvPlan& plan :
         plans_of_convolution(*conv_product_of<Source>(), source.s, *a, result, copied)) {
      std::string objection;
      const std::shared_ptr<LibraryProduct> product = library.convolution(plan, objection);
      if (found(product)) return convolution_step(c, epilogue, plan, product);
      if (!why.ends_with(objection)) why += (why.empty() ? "" : "; ") + objection;
    }
  }
  if (conv_product_of<Source>() && source.count > 1) {
    const std::string own = "grouped convolutions are not computed as matrix products";
    c.kernel->text = "own kernel: " + (why.empty() ? own : why + "; " + own);
    return {};
  }
  const auto packed = [&](int64_t count) {
    return plan_packed(source.m, source.n, source.k, *a, *b, result, count);
  };
  const PackedPlan one = packed(1);
  std::string other =
      "copying its operands would take " + std::to_string(one.operand_bytes() >> 20) + " MiB";
  if (one.operand_bytes() <= library.most_copied()) {
    const int64_t count = products_of_a_call(source.count, one.operand_bytes() + one.sum_bytes(),
                                             library.most_copied());
    const PackedPlan plan = packed(count);
    const std::shared_ptr<LibraryProduct> product = library.matrix(plan.matrix, other);
    if (found(product)) {
      if (!why.empty()) c.kernel->text += " (as a matrix product: " + why + ")";
      c.kernel->text += ", operands copied first";
      if (count < source.count) {
        c.kernel->text += ", " + std::to_string(ceil_div(source.count, count)) + " calls";
      }
      return packed_step(c, source, epilogue, plan, product);
    }
  }
  if (in_place) {  // in many calls
    if (Step step = step_in_place()) return step;
  }
  c.kernel->text = "own kernel: " + (why.empty() || why == other ? other : why + "; " + other);
  return {};
}

}  // namespace halfscope::gpu
