// SPDX-License-Identifier: MIT
// Steps of products that a library computes: operands are stored as it wants them, it writes the
// sums, and a body of ours does what comes after them. Which library and with what choices, or why
// none, goes to the call's `kernel`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>

#include "gpu/bodies/library_operands.h"
#include "gpu/engine/node_call.h"
#include "gpu/libraries/product_library.h"

namespace halfscope::gpu {

/// Memory that all products of a program use in turn.
class Scratch {
 public:
  /// Call it while steps are made.
  void need(int64_t bytes) { bytes_ = std::max(bytes_, bytes); }
  int64_t bytes() const { return bytes_; }

  std::byte* memory = nullptr;  ///< there when steps run

 private:
  int64_t bytes_ = 0;
};

/// What a call has where libraries may compute its product.
struct LibraryCall {
  ProductLibrary* library = nullptr;
  Scratch* scratch = nullptr;
};

/// Patches of a convolution may take so much of the device.
inline constexpr int64_t kMostPatchBytes = int64_t{1} << 30;

/// Where operands and sums begin in the scratch.
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

/// Calls f(operand element, sum element) with values of the types that hold them.
template <class F>
Step with_stored_types(Storage operands, Storage sums, const F& f) {
  if (bytes_of(operands) == 1) return f(uint8_t{}, float{});
  if (bytes_of(operands) == 4) return f(float{}, float{});
  return bytes_of(sums) == 2 ? f(uint16_t{}, uint16_t{}) : f(uint16_t{}, float{});
}

/// What the library writes: fp32, or in fast mode what the result is rounded to anyway.
template <class X>
Storage result_storage(const NodeCall<X, float>& c, const Epilogue<float>& epilogue,
                       Storage operands) {
  const Value& value = c.graph->value(c.node->outputs[0]);
  const bool plain = epilogue.bias == nullptr && !epilogue.scaled &&
                     value.rounding.mode == RoundingMode::nearest_even;
  const bool narrow = bytes_of(operands) == 2 && value.format == format_of(operands);
  return c.libraries->library->fast() && plain && narrow ? operands : Storage::fp32;
}

template <class X>
Step in_place_step(const NodeCall<X, float>& c, const GemmSource<float>& source,
                   const Epilogue<float>& epilogue, std::shared_ptr<LibraryProduct> product) {
  X& executor = *c.executor;
  return [&executor, source, epilogue, product](const RunState&) {
    for (int64_t p = 0; p < source.count; ++p) {
      const GemmSource<float> s = source.product(p);
      product->run(s.x, s.w, s.y + s.first);
      if (epilogue.bias == nullptr && !epilogue.scaled) continue;
      executor.items(s.m * s.n, FinishMatrix<float, GemmSource<float>>{s, epilogue, s.y + s.first,
                                                                       s.n, kFp32});
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
  return with_stored_types(a, d, [&](auto operand, auto sum) -> Step {
    using Operand = decltype(operand);
    using Sum = decltype(sum);
    return [&executor, scratch, source, epilogue, plan, product, at, a_count, b_count, a, b,
            d](const RunState&) {
      std::byte* const memory = scratch->memory;
      Operand* const first = reinterpret_cast<Operand*>(memory + at.a);
      Operand* const second = reinterpret_cast<Operand*>(memory + at.b);
      Sum* const sums = reinterpret_cast<Sum*>(memory + at.sums);
      for (int64_t p = 0; p < source.count; ++p) {
        const Source s = source.product(p);
        executor.items(a_count,
                       PackLines<Operand, Source, true>{s, first, plan.pitch, format_of(a)});
        executor.items(b_count,
                       PackLines<Operand, Source, false>{s, second, plan.pitch, format_of(b)});
        product->run(first, second, sums);
        executor.items(s.m * s.n,
                       FinishMatrix<Sum, Source>{s, epilogue, sums, plan.d_pitch, format_of(d)});
      }
    };
  });
}

/// Of one of the three products of a convolution, operands and result as they are: NCHW.
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
  const bool in_place = bytes_of(operands) == 4;
  const ScratchPlaces at =
      in_place ? ScratchPlaces{}
               : ScratchPlaces::of(a_count * bytes_of(operands), b_count * bytes_of(operands),
                                   count * bytes_of(result));
  c.libraries->scratch->need(at.end);
  X& executor = *c.executor;
  const Scratch* const scratch = c.libraries->scratch;
  const float *const x = c.in[0], *const w = c.in[1];
  float* const y = c.out[0];
  const int64_t per_bias = forward ? made_pixels : 1, biases = forward ? made.size[1] : 1;
  return with_stored_types(operands, result, [&](auto operand, auto sum) -> Step {
    using Operand = decltype(operand);
    using Sum = decltype(sum);
    const FloatFormat code = format_of(operands);
    const ChannelsLast<Operand> pack_a{x, nullptr, a.size[1], a.size[2] * a.size[3], code};
    const ChannelsLast<Operand> pack_b{w, nullptr, b.size[1], b.size[2] * b.size[3], code};
    const FinishTensor<Sum> finish{
        epilogue, nullptr,          y, made.size[1], in_place ? 0 : made_pixels, per_bias,
        biases,   format_of(result)};
    return [&executor, scratch, pack_a, pack_b, finish, product, at, a_count, b_count, count,
            in_place](const RunState&) {
      if (in_place) {
        product->run(pack_a.x, pack_b.x, finish.y);
        if (finish.epilogue.bias == nullptr && !finish.epilogue.scaled) return;
        FinishTensor<Sum> now = finish;
        if constexpr (std::is_same_v<Sum, float>) now.sums = finish.y;
        executor.items(count, now);
        return;
      }
      std::byte* const memory = scratch->memory;
      ChannelsLast<Operand> first = pack_a, second = pack_b;
      first.to = reinterpret_cast<Operand*>(memory + at.a);
      second.to = reinterpret_cast<Operand*>(memory + at.b);
      FinishTensor<Sum> now = finish;
      Sum* const sums = reinterpret_cast<Sum*>(memory + at.sums);
      now.sums = sums;
      executor.items(a_count, first);
      executor.items(b_count, second);
      product->run(first.to, second.to, sums);
      executor.items(count, now);
    };
  });
}

/// Which convolution a source of terms is; nothing for a matrix product.
template <class Source>
std::optional<ConvProduct> conv_product_of() {
  if (std::is_same_v<Source, ConvSource<float>>) return ConvProduct::forward;
  if (std::is_same_v<Source, ConvGradInputSource<float>>) return ConvProduct::grad_input;
  if (std::is_same_v<Source, ConvGradWeightSource<float>>) return ConvProduct::grad_weight;
  return std::nullopt;
}

/// Whether the operands are values of the formats that the node reads: scaled by block they are
/// codes times their scales.
template <class X>
bool operands_are_as_read(const NodeCall<X, float>& c) {
  for (size_t i = 0; i < 2; ++i) {
    const FloatFormat read = read_format(*c.graph, *c.node, i).without_options();
    if (!read.contains(c.graph->value(c.node->inputs[i]).format.without_options())) return false;
  }
  return true;
}

/// Nothing, and why in `kernel`, if no library does it. `spec` has its operands in the order of
/// Source::a and Source::b.
template <class X, class Source>
Step library_step(const NodeCall<X, float>& c, const Source& source, const SumSpec& spec,
                  const Epilogue<float>& epilogue) {
  std::string why;
  const auto found = [&](const std::shared_ptr<LibraryProduct>& product) {
    if (product != nullptr) *c.kernel = product->text();
    return product != nullptr;
  };
  ProductLibrary& library = *c.libraries->library;
  std::optional<Storage> a = storage_of(spec.read), b = storage_of(spec.b_format());
  if (!operands_are_as_read(c)) a = b = Storage::fp32;
  why = cannot_multiply(a, b);
  if (spec.accumulation != Accumulation::fp32) why = "no library sums like this";
  if (source.count == 0 || source.m == 0 || source.n == 0 || source.k == 0) {
    why = "nothing to multiply";
  }
  if (conv_product_of<Source>() && source.count > 1) why = "a convolution in groups";
  if (!why.empty()) {
    *c.kernel = "own kernel: " + why;
    return {};
  }
  const Storage result = result_storage(c, epilogue, *a);
  if constexpr (std::is_same_v<Source, GemmSource<float>>) {
    if (bytes_of(*a) == 4) {
      const std::optional<MatrixPlan> plan =
          plan_in_place(source.m, source.n, source.k,
                        {source.a_row, source.a_column, source.b_row, source.b_column}, *a);
      const std::shared_ptr<LibraryProduct> product = plan ? library.matrix(*plan, why) : nullptr;
      if (found(product)) return in_place_step(c, source, epilogue, product);
    }
  } else if (bytes_of(*a) > 1) {
    const ConvPlan plan = plan_convolution(*conv_product_of<Source>(), source.s, *a, result);
    const std::shared_ptr<LibraryProduct> product = library.convolution(plan, why);
    if (found(product)) return convolution_step(c, epilogue, plan, product);
  }
  const PackedPlan plan = plan_packed(source.m, source.n, source.k, *a, *b, result);
  const int64_t bytes = (plan.a_lines + plan.b_lines) * plan.pitch * bytes_of(*a);
  std::string other = "its operands laid out would take " + std::to_string(bytes >> 20) + " MiB";
  if (bytes <= kMostPatchBytes) {
    const std::shared_ptr<LibraryProduct> product = library.matrix(plan.matrix, other);
    if (found(product)) {
      if (!why.empty()) *c.kernel += " (as a matrix product: " + why + ")";
      return packed_step(c, source, epilogue, plan, product);
    }
  }
  *c.kernel = "own kernel: " + (why.empty() || why == other ? other : why + "; " + other);
  return {};
}

}  // namespace halfscope::gpu
