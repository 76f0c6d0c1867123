// SPDX-License-Identifier: MIT
// Expands ONNX's Attention (from opset 23) into the primitives that recognise.cpp turns into our
// Attention, and translates RotaryEmbedding. Fully masked rows of scores give zeros and no
// gradient.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/onnx/fold_parts.h"
#include "core/onnx/translate.h"

namespace halfscope::onnx_files {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();
constexpr int64_t kMostHeads = int64_t{1} << 20;

class AttentionNode {
 public:
  explicit AttentionNode(Translation& t) : t_(t) {}

  void run() {
    if (t_.has(6)) throw t_.error("nonpad_kv_seqlen is not supported");
    if (t_.node().output_size() > 3 && !t_.node().output(3).empty())
      throw t_.error("scores as an output are not supported");
    const size_t rank = t_.shape(0).size();
    if ((rank != 3 && rank != 4) || t_.shape(1).size() != rank || t_.shape(2).size() != rank)
      throw t_.error("its queries, keys and values must have three or four dimensions");
    flat_ = rank == 3;
    const ValueId q = heads(0, "q");
    ValueId k = with_past(heads(1, "k"), 4, "k"), v = with_past(heads(2, "v"), 5, "v");
    if (t_.has(4) != t_.has(5)) throw t_.error("past keys and past values must be given together");
    past_ = t_.has(4) ? t_.shape(4)[2] : 0;
    if (t_.node().output_size() > 1) t_.set(1, k);
    if (t_.node().output_size() > 2) t_.set(2, v);
    const Shape query = t_.shape_of(q);
    k = shared(k, query[1], "k");
    v = shared(v, query[1], "v");
    queries_ = query[2];
    keys_ = t_.shape_of(k)[2];
    const ValueId turned = transposed(k, {0, 1, 3, 2}, "k_turned");
    ValueId scores = t_.add("MatMul", {q, turned}, {}, "scores");
    const double scale =
        t_.attributes().real("scale", 1.0 / std::sqrt(static_cast<double>(query[3])));
    if (scale != 1.0) scores = t_.add("Mul", {scores, number(scale)}, {}, "scale");
    const double cap = t_.attributes().real("softcap", 0.0);
    if (cap > 0.0) {
      scores = t_.add("Div", {scores, number(cap)}, {}, "capped");
      scores = t_.add("Tanh", {scores}, {}, "cap");
      scores = t_.add("Mul", {scores, number(cap)}, {}, "uncapped");
    }
    scores = masked(scores);
    const ValueId weights = t_.add("Softmax", {scores}, {{"axis", int64_t{-1}}}, "softmax");
    ValueId y = t_.add("MatMul", {weights, v}, {}, "mix");
    if (some_key_ != kNone) y = t_.add("Where", {some_key_, y, number(0.0)}, {}, "or_zero");
    if (flat_) {
      const Shape s = t_.shape_of(y);
      y = transposed(y, {0, 2, 1, 3}, "heads_last");
      y = t_.reshape(y, {s[0], s[2], s[1] * s[3]}, "joined");
    }
    set_named(t_, y);
  }

 private:
  ValueId number(double value) { return t_.graph().add_constant(static_cast<float>(value)); }

  ValueId transposed(ValueId x, std::vector<int64_t> order, const std::string& suffix) {
    return t_.add("Transpose", {x}, {{"perm", std::move(order)}}, suffix);
  }

  /// Returns input i as [batch, heads, sequence, size].
  ValueId heads(size_t i, const std::string& name) {
    const ValueId x = t_.real(i, name.c_str());
    if (!flat_) return x;
    const char* attribute = i == 0 ? "q_num_heads" : "kv_num_heads";
    const int64_t count =
        bounded(t_, {t_.attributes().integer(attribute, 0)}, 1, kMostHeads, attribute)[0];
    const Shape s = t_.shape_of(x);
    if (s[2] % count != 0)
      throw t_.error(std::to_string(count) + " heads do not fit " + to_string(s));
    const ValueId split = t_.reshape(x, {s[0], s[1], count, s[2] / count}, name + "_heads");
    return transposed(split, {0, 2, 1, 3}, name + "_heads_first");
  }

  ValueId with_past(ValueId x, size_t i, const std::string& name) {
    if (!t_.has(i)) return x;
    if (t_.shape(i).size() != 4)
      throw t_.error("its past keys and values must have four dimensions");
    if (element_count(t_.shape(i)) == 0) return x;  // an empty cache
    const ValueId past = t_.real(i, "past");
    return t_.add("Concat", {past, x}, {{"axis", int64_t{2}}}, name + "_with_past");
  }

  /// Repeats each head of keys or values for the query heads that share it.
  ValueId shared(ValueId x, int64_t wanted, const std::string& name) {
    Shape s = t_.shape_of(x);
    if (s[1] == wanted) return x;
    if (s[1] < 1 || wanted % s[1] != 0)
      throw t_.error(std::to_string(wanted) + " heads cannot share " + std::to_string(s[1]) +
                     " heads of keys or values");
    const int64_t times = wanted / s[1];
    const ValueId column = t_.reshape(x, {s[0], s[1], 1, s[2], s[3]}, name + "_group");
    const ValueId wide = t_.add(
        "Expand", {column}, {{"shape", Shape{s[0], s[1], times, s[2], s[3]}}}, name + "_copies");
    return t_.reshape(wide, {s[0], wanted, s[2], s[3]}, name + "_shared");
  }

  /// Returns which keys each query may see under is_causal and the windows of opset 25.
  std::optional<KnownTensor> visible() {
    const bool causal = t_.attributes().integer("is_causal", 0) != 0;
    const int64_t left = t_.attributes().integer("left_window_size", -1);
    const int64_t right = t_.attributes().integer("right_window_size", -1);
    if (!causal && left < 0 && right < 0) return std::nullopt;
    KnownTensor mask{.type = DataType::boolean, .shape = {queries_, keys_}};
    checked_count(mask.shape, t_.what(), kMostFolded);
    for (int64_t i = 0; i < queries_; ++i) {
      for (int64_t j = 0; j < keys_; ++j) {
        const int64_t behind = i + past_ - j;
        mask.ints.push_back((!causal || behind >= 0) && (left < 0 || behind <= left) &&
                            (right < 0 || -behind <= right));
      }
    }
    return mask;
  }

  ValueId condition(const KnownTensor& mask) {
    return t_.graph().add_index_constant(mask.shape,
                                         std::vector<int32_t>(mask.ints.begin(), mask.ints.end()));
  }

  /// Extends the mask to all keys; the added ones are hidden.
  ValueId padded(ValueId mask, int64_t missing, bool boolean) {
    if (missing == 0) return mask;
    std::vector<int64_t> pads(2 * t_.shape_of(mask).size(), 0);
    pads.back() = missing;
    Attributes attributes{{"pads", pads}};
    if (!boolean) attributes["value"] = kHidden;
    return t_.add("Pad", {mask}, attributes, "mask_for_all_keys");
  }

  /// Sets some_key_ unless the known mask [..., keys] leaves every row at least one key.
  void note_rows(const KnownTensor& mask) {
    std::vector<int32_t> seen;
    for (int64_t i = 0, n = mask.count(); i < n; ++i) {
      if (i % keys_ == 0) seen.push_back(0);
      if (mask.real() ? mask.number(i) > kHidden : mask.number(i) != 0.0) seen.back() = 1;
    }
    if (std::find(seen.begin(), seen.end(), 0) == seen.end()) return;
    Shape shape = mask.shape;
    shape.back() = 1;
    some_key_ = t_.graph().add_index_constant(shape, std::move(seen));
  }

  ValueId masked(ValueId scores) {
    const std::optional<KnownTensor> positions = visible();
    const ValueId hidden = number(kHidden);
    if (!t_.has(3)) {
      if (!positions) return scores;
      note_rows(*positions);
      return guarded(t_.add("Where", {condition(*positions), scores, hidden}, {}, "mask"));
    }
    const Shape shape = t_.shape(3);
    const int64_t last = shape.empty() ? 1 : shape.back();
    if (last != keys_ && (last > keys_ || last == 1))
      throw t_.error("its mask " + to_string(shape) + " does not fit " + std::to_string(keys_) +
                     " keys");
    const bool boolean = t_.type(3) == DataType::boolean;
    if (!boolean && t_.is_index(3)) throw t_.error("its mask must be booleans or reals");
    const bool fixed = t_.is_known(3) && !t_.is_trained(3);
    if (fixed) {
      const KnownTensor both = combined(t_.known(3, "mask"), positions);
      note_rows(both);
      if (boolean) {
        scores = t_.add("Where", {condition(both), scores, hidden}, {}, "mask");
      } else {
        const ValueId bias = t_.graph().add_constant(Tensor{both.shape, both.reals});
        scores = t_.add("Add", {scores, bias}, {}, "mask");
      }
      return guarded(scores);
    }
    ValueId mask = boolean ? t_.index(3) : t_.real(3, "mask");
    mask = padded(mask, keys_ - last, boolean);
    const Attributes row{{"axes", std::vector<int64_t>{-1}}, {"keepdims", int64_t{1}}};
    if (boolean) {
      if (positions) mask = t_.add("And", {mask, condition(*positions)}, {}, "both_masks");
      some_key_ = t_.add("ReduceMax", {mask}, row, "some_key");
      return guarded(t_.add("Where", {mask, scores, hidden}, {}, "mask"));
    }
    if (positions) mask = t_.add("Where", {condition(*positions), mask, hidden}, {}, "both_masks");
    // A trained mask is added as ordinary numbers and never hides a key.
    if (!t_.is_known(3) || positions) {
      const ValueId largest = t_.add("ReduceMax", {mask}, row, "largest");
      some_key_ = t_.add("Greater", {largest, hidden}, {}, "some_key");
    }
    return guarded(t_.add("Add", {scores, mask}, {}, "mask"));
  }

  /// Extends a known mask to all keys and merges it with the visible positions.
  KnownTensor combined(const KnownTensor& mask, const std::optional<KnownTensor>& positions) {
    KnownTensor wide{.type = mask.type, .shape = mask.shape};
    const int64_t last = mask.shape.empty() ? 1 : mask.shape.back();
    wide.shape.back() = keys_;
    checked_count(wide.shape, t_.what(), kMostFolded);
    for (int64_t i = 0, n = wide.count(); i < n; ++i) {
      const int64_t column = i % keys_;
      if (column < last) {
        append(wide, mask, i / keys_ * last + column);
      } else if (wide.real()) {
        wide.reals.push_back(static_cast<float>(kHidden));
      } else {
        wide.ints.push_back(0);
      }
    }
    if (!positions) return wide;
    KnownTensor both{.type = mask.type,
                     .shape = broadcast_of(wide.shape, positions->shape, t_.what())};
    checked_count(both.shape, t_.what(), kMostFolded);
    const Walk at_mask(wide.shape, both.shape), at_place(positions->shape, both.shape);
    for (int64_t i = 0, n = both.count(); i < n; ++i) {
      if (positions->number(at_place(i)) != 0.0) {
        append(both, wide, at_mask(i));
      } else if (both.real()) {
        both.reals.push_back(static_cast<float>(kHidden));
      } else {
        both.ints.push_back(0);
      }
    }
    return both;
  }

  /// Sets the scores of rows without a key to 0, so that their softmax is finite; their result is
  /// discarded later.
  ValueId guarded(ValueId scores) {
    if (some_key_ == kNone) return scores;
    return t_.add("Where", {some_key_, scores, number(0.0)}, {}, "rows_with_keys");
  }

  Translation& t_;
  bool flat_ = false;
  int64_t past_ = 0, queries_ = 0, keys_ = 0;
  ValueId some_key_ = kNone;  ///< whether each query sees a key; kNone if all of them do
};

void attention(Translation& t) {
  check_domain(t);
  AttentionNode(t).run();
}

/// Returns the cosine or sine table for the positions of every sample. The table is not trainable.
ValueId table(Translation& t, size_t i, const std::string& name) {
  ValueId value = kNone;
  if (t.is_known(i)) {
    const KnownTensor& known = t.known(i, "table");
    if (!known.real()) throw t.error("its tables must be reals");
    value = t.graph().add_constant(Tensor{known.shape, known.reals});
  } else {
    value = t.real(i);
  }
  const bool by_position = t.has(3);
  if (t.shape_of(value).size() != (by_position ? 2u : 3u))
    throw t.error("its tables do not fit its positions");
  if (by_position) value = t.add("Gather", {value, t.index(3)}, {{"axis", int64_t{0}}}, name);
  return value;
}

ValueId slice_last(Translation& t, ValueId x, int64_t start, int64_t end, int64_t step,
                   const std::string& name) {
  return t.add("Slice", {x},
               {{"starts", std::vector<int64_t>{start}},
                {"ends", std::vector<int64_t>{end}},
                {"axes", std::vector<int64_t>{static_cast<int64_t>(t.shape_of(x).size()) - 1}},
                {"steps", std::vector<int64_t>{step}}},
               name);
}

/// Rotates pairs (a, b), taken from the two halves of the head or from neighbours, by an angle:
/// (cos a - sin b, sin a + cos b).
void rotary_embedding(Translation& t) {
  check_domain(t);
  const Shape shape = t.shape(0);
  if (shape.size() != 3 && shape.size() != 4)
    throw t.error("its input must have three or four dimensions");
  const bool flat = shape.size() == 3;
  ValueId x = t.real(0);
  if (flat) {
    const int64_t heads =
        bounded(t, {t.attributes().integer("num_heads", 0)}, 1, kMostHeads, "num_heads")[0];
    if (shape[2] % heads != 0) throw t.error("its heads do not fit " + to_string(shape));
    x = t.reshape(x, {shape[0], shape[1], heads, shape[2] / heads}, "heads");
  }
  const int64_t size = t.shape_of(x)[3];
  int64_t turned = t.attributes().integer("rotary_embedding_dim", 0);
  if (turned == 0) turned = size;
  if (turned < 2 || turned > size || turned % 2 != 0)
    throw t.error("the number of rotated dimensions is out of range or odd");
  const int64_t half = turned / 2, sequence = flat ? shape[1] : shape[2];
  const auto angles = [&](size_t i, const std::string& name) {
    const ValueId all = table(t, i, name);
    const Shape s = t.shape_of(all);
    if (s.size() != 3 || s[2] != half || s[1] != sequence || (s[0] != 1 && s[0] != shape[0]))
      throw t.error("its tables " + to_string(s) + " do not fit " + to_string(shape));
    return t.reshape(all, flat ? Shape{s[0], s[1], 1, s[2]} : Shape{s[0], 1, s[1], s[2]},
                     name + "_for_heads");
  };
  const ValueId cosine = angles(1, "cos"), sine = angles(2, "sin");
  const bool neighbours = t.attributes().integer("interleaved", 0) != 0;
  const ValueId a =
      neighbours ? slice_last(t, x, 0, turned, 2, "a") : slice_last(t, x, 0, half, 1, "a");
  const ValueId b =
      neighbours ? slice_last(t, x, 1, turned, 2, "b") : slice_last(t, x, half, turned, 1, "b");
  const auto product = [&](ValueId u, ValueId v, const char* name) {
    return t.add("Mul", {u, v}, {}, name);
  };
  ValueId first =
      t.add("Sub", {product(cosine, a, "cos_a"), product(sine, b, "sin_b")}, {}, "first");
  ValueId second =
      t.add("Add", {product(sine, a, "sin_a"), product(cosine, b, "cos_b")}, {}, "second");
  Shape pairs = t.shape_of(first);
  const int64_t last = neighbours ? 4 : 3;
  if (neighbours) {
    pairs.push_back(1);
    first = t.reshape(first, pairs, "first_column");
    second = t.reshape(second, pairs, "second_column");
  }
  ValueId y = t.add("Concat", {first, second}, {{"axis", last}}, "turned");
  if (neighbours) {
    pairs.pop_back();
    pairs[3] = turned;
    y = t.reshape(y, pairs, "neighbours");
  }
  if (turned < size) {
    const ValueId rest = slice_last(t, x, turned, size, 1, "rest");
    y = t.add("Concat", {y, rest}, {{"axis", int64_t{3}}}, "whole");
  }
  y = t.reshape(y, shape, "joined");
  set_named(t, y);
}

constexpr Translator kAttentionTranslators[] = {
    {"Attention", attention},
    {"RotaryEmbedding", rotary_embedding},
};

}  // namespace

std::span<const Translator> attention_translators() { return kAttentionTranslators; }

}  // namespace halfscope::onnx_files
