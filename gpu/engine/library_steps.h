// SPDX-License-Identifier: MIT
// Steps of products that a library computes: operands are stored as it requires, it writes the
// sums, and one of our bodies finishes them. The call's `kernel` receives the library and its
// choices, or the reason why none is used.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <type_traits>

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

/// Largest device memory for the patches of a convolution.
inline constexpr int64_t kMostPatchBytes = int64_t{1} << 30;

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
/// is rounded anyway.
template <class X>
Storage result_storage(const NodeCall<X, float>& c, const Epilogue<float>& epilogue,
                       Storage operands) {
  const Value& value = c.graph->value(c.node->outputs[0]);
  const bool plain = epilogue.bias == nullptr && !epilogue.scaled &&
                     value.rounding.mode == RoundingMode::nearest_even;
  const bool narrow = bytes_of(operands) == 2 && value.format == format_of(operands);
  return c.libraries->library->fast() && plain && narrow ? operands : Storage::fp32;
}

/// Returns whether the library's sums are already the outputs, in unrounded memory.
template <class Results>
bool sums_are_results(const Results& y, const Epilogue<float>& epilogue, const RunState& state) {
  const bool as_summed = epilogue.bias == nullptr && !epilogue.scaled;
  return as_summed && (state.measured || !y.stores());
}

/// Makes the step of a product whose operands are read in place. Sums go directly to the output, in
/// 16 bits or unrounded.
template <class X>
Step in_place_step(const NodeCall<X, float>& c, const GemmSource<float>& source,
                   const Epilogue<float>& epilogue, Storage sums,
                   std::shared_ptr<LibraryProduct> product) {
  X& executor = *c.executor;
  const bool narrow = bytes_of(sums) == 2;
  return [&executor, source, epilogue, narrow, product](const RunState& state) {
    for (int64_t p = 0; p < source.count; ++p) {
      const GemmSource<float> s = source.product(p);
      const Destination to = s.y.destination() + s.first;
      float* const exact = s.y.exact() + s.first;
      void* const result = narrow ? to.memory : exact;
      executor.enqueue([product, s, result] { product->run(s.x.memory(), s.w.memory(), result); });
      if (narrow ? !state.measured : sums_are_results(s.y, epilogue, state)) continue;
      const In<float> made = narrow ? In<float>(to.memory, to.storage) : In<float>(exact);
      const int64_t n = s.m * s.n;
      executor.items(items_of_several(n), FinishRows{epilogue, made, s.y + s.first, n, s.n, s.k,
                                                     s.bias_row, s.bias_column, s.first});
    }
  };
}

template <class X, class Source>
Step packed_step(const NodeCall<X, float>& c, const Source& source, const Epilogue<float>& epilogue,
                 const PackedPlan& plan, std::shared_ptr<LibraryProduct> product) {
  const MatrixPlan& matrix = plan.matrix;
  const Storage a = matrix.second.storage, b = matrix.first.storage, d = matrix.d.storage;
  const int64_t a_count = plan.a_lines * plan.pitch, b_count = plan.b_lines * plan.pitch;
  const ScratchPlaces at = ScratchPlaces::of(a_count * bytes_of(a), b_count * bytes_of(b),
                                             plan.a_lines * plan.d_pitch * bytes_of(d));
  c.libraries->scratch->need(at.end);
  X& executor = *c.executor;
  const Scratch* const scratch = c.libraries->scratch;
  return [&executor, scratch, source, epilogue, plan, product, at, a_count, b_count, a, b,
          d](const RunState&) {
    std::byte* const memory = scratch->memory;
    std::byte *const first = memory + at.a, *const second = memory + at.b;
    std::byte* const sums = memory + at.sums;
    for (int64_t p = 0; p < source.count; ++p) {
      const Source s = source.product(p);
      executor.items(a_count, PackLines<Source, true>{s, first, plan.pitch, a});
      executor.items(b_count, PackLines<Source, false>{s, second, plan.pitch, b});
      executor.enqueue([product, first, second, sums] { product->run(first, second, sums); });
      executor.items(s.m * s.n,
                     FinishMatrix<Source>{s, epilogue, In<float>(sums, d), plan.d_pitch});
    }
  };
}

/// Makes the step of one of a convolution's three products, with operands and output in place
/// (NCHW), or copied with channels last. Operands that the plan has in 32 bits are also copied if
/// they are stored in fewer.
template <class X>
Step convolution_step(const NodeCall<X, float>& c, const Epilogue<float>& epilogue,
                      const ConvPlan& plan, std::shared_ptr<LibraryProduct> product) {
  const bool forward = plan.product == ConvProduct::forward;
  const TensorPlan& a = forward ? plan.x : plan.y;
  const TensorPlan& b = plan.product == ConvProduct::grad_weight ? plan.x : plan.w;
  const TensorPlan& made = forward                                   ? plan.y
                           : plan.product == ConvProduct::grad_input ? plan.x
                                                                     : plan.w;
  const Storage operands = a.storage, result = made.storage;
  const int64_t made_pixels = made.size[2] * made.size[3];
  const int64_t a_count = c.in_count(0), b_count = c.in_count(1), count = c.out_count(0);
  const bool planar = !plan.channels_last;
  const auto lies_so = [&](const In<float>& x) { return planar && bytes_of(x.storage()) == 4; };
  const bool reads_a = lies_so(c.in[0]), reads_b = lies_so(c.in[1]);
  const ScratchPlaces at = ScratchPlaces::of(reads_a ? 0 : a_count * bytes_of(operands),
                                             reads_b ? 0 : b_count * bytes_of(operands),
                                             planar ? 0 : count * bytes_of(result));
  c.libraries->scratch->need(at.end);
  X& executor = *c.executor;
  const Scratch* const scratch = c.libraries->scratch;
  // Planar operands are copied as if they had one channel.
  const auto tiles = [planar](const TensorPlan& of, int64_t n) {
    const int64_t channels = planar ? 1 : of.size[1], pixels = planar ? 1 : of.size[2] * of.size[3];
    return ChannelTiles(n / std::max<int64_t>(channels * pixels, 1), channels, pixels);
  };
  const ChannelsLast pack_a{c.in[0], nullptr, operands, tiles(a, a_count)};
  const ChannelsLast pack_b{c.in[1], nullptr, operands, tiles(b, b_count)};
  const FinishPlanes as_it_lies{.epilogue = epilogue,
                                .sums = nullptr,
                                .y = c.out[0],
                                .per_bias = forward ? made_pixels : 1,
                                .biases = forward ? made.size[1] : 1};
  const FinishChannelsLast turned{epilogue, nullptr, c.out[0], tiles(made, count)};
  return [&executor, scratch, pack_a, pack_b, as_it_lies, turned, product, at, count, planar,
          reads_a, reads_b, result](const RunState& state) {
    const auto operand = [&](ChannelsLast pack, bool reads, int64_t place) -> const void* {
      if (reads) return pack.x.memory();
      pack.to = scratch->memory + place;
      executor.blocks(pack);
      return pack.to;
    };
    const void* const x = operand(pack_a, reads_a, at.a);
    const void* const w = operand(pack_b, reads_b, at.b);
    void* const sums = planar ? static_cast<void*>(as_it_lies.y.exact())
                              : static_cast<void*>(scratch->memory + at.sums);
    executor.enqueue([product, x, w, sums] { product->run(x, w, sums); });
    if (!planar) {
      FinishChannelsLast now = turned;
      now.sums = In<float>(sums, result);
      executor.blocks(now);
    } else if (!sums_are_results(as_it_lies.y, as_it_lies.epilogue, state)) {
      FinishPlanes now = as_it_lies;
      now.sums = In<float>(sums, result);
      executor.items(count, now);
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

/// Returns a plan for operands that are already stored in the format in which they are multiplied.
/// Returns nothing if they are not, or if narrow ones have lines or matrices that do not start on
/// 16 bytes.
inline std::optional<MatrixPlan> plan_as_it_lies(const GemmSource<float>& source, Storage a,
                                                 Storage b, Storage result) {
  const auto lies_as = [](const In<float>& x, Storage storage) {
    return bytes_of(storage) == 4 ? bytes_of(x.storage()) == 4 : x.storage() == storage;
  };
  if (!lies_as(source.x, a) || !lies_as(source.w, b)) return std::nullopt;
  const bool stores = source.y.stores() && source.y.destination().storage == result;
  std::optional<MatrixPlan> plan = plan_in_place(
      source.m, source.n, source.k, {source.a_row, source.a_column, source.b_row, source.b_column},
      a, b, stores ? result : Storage::fp32);
  if (!plan) return std::nullopt;
  int64_t first_a = kMostAlignment, first_b = kMostAlignment, first_d = kMostAlignment;
  for (int64_t p = 0; p < source.count; ++p) {
    first_a = std::gcd(first_a, source.a_batch.offset(p) * bytes_of(a));
    first_b = std::gcd(first_b, source.b_batch.offset(p) * bytes_of(b));
    first_d = std::gcd(first_d, p * source.m * source.n * bytes_of(plan->d.storage));
  }
  if (bytes_of(a) < 4 && (first_a % kLineBytes != 0 || first_b % kLineBytes != 0)) {
    return std::nullopt;
  }
  plan->second.alignment = first_a;
  plan->first.alignment = first_b;
  plan->d.alignment = first_d;
  return plan;
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
  if constexpr (std::is_same_v<Source, GemmSource<float>>) {
    if (const std::optional<MatrixPlan> plan = plan_as_it_lies(source, *a, *b, result)) {
      const std::shared_ptr<LibraryProduct> product = library.matrix(*plan, why);
      if (found(product)) return in_place_step(c, source, epilogue, plan->d.storage, product);
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
  const PackedPlan plan = plan_packed(source.m, source.n, source.k, *a, *b, result);
  const int64_t bytes = (plan.a_lines + plan.b_lines) * plan.pitch * bytes_of(*a);
  std::string other = "copying its operands would take " + std::to_string(bytes >> 20) + " MiB";
  if (bytes <= kMostPatchBytes) {
    const std::shared_ptr<LibraryProduct> product = library.matrix(plan.matrix, other);
    if (found(product)) {
      if (!why.empty()) c.kernel->text += " (as a matrix product: " + why + ")";
      c.kernel->text += ", operands copied first";
      return packed_step(c, source, epilogue, plan, product);
    }
  }
  c.kernel->text = "own kernel: " + (why.empty() || why == other ? other : why + "; " + other);
  return {};
}

}  // namespace halfscope::gpu
