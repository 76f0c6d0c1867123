// SPDX-License-Identifier: MIT
// Einsum: each operand is brought to one axis per letter (repeated letters take the diagonal),
// letters that nothing reads later are summed, and pairs of operands become matrix products.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "core/onnx/translate.h"

namespace halfscope::onnx_files {
namespace {

/// The axes of "..." get their own letters, counted from the last: 1, 2, ...
using Letters = std::vector<char>;

bool is_ellipsis(char letter) { return letter < 'A'; }

/// An operand with one axis per letter.
struct Term {
  ValueId value = kNone;
  Letters letters{};
};

bool contains(const Letters& letters, char letter) {
  return std::find(letters.begin(), letters.end(), letter) != letters.end();
}

class Einsum {
 public:
  explicit Einsum(Translation& t) : t_(t) {}

  void run() {
    const auto first = static_cast<NodeId>(t_.graph().nodes().size());
    read_equation();
    for (size_t i = 0; i < t_.input_count(); ++i) operands_.push_back(operand(i));
    Term result = operands_[0];
    sum_unread(result, 1);
    for (size_t i = 1; i < operands_.size(); ++i) {
      Term next = operands_[i];
      next_ = i + 1;
      result = product(result, next);
    }
    result = ordered(result, output_, "order");
    const NodeId last = t_.graph().value(result.value).producer;
    if (last < first) {
      t_.set(0, t_.add("Identity", {result.value}));
    } else {
      set_named(t_, result.value);
    }
  }

 private:
  std::string suffix(const std::string& name) const {
    return next_ < 3 ? name : name + std::to_string(next_ - 1);
  }

  /// Returns the letters of "ab...c" for an operand of this rank, or all of the ellipsis if the
  /// rank is unknown.
  Letters letters_of(const std::string& text, size_t rank) const {
    Letters letters;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text.compare(i, 3, "...") != 0) {
        letters.push_back(text[i]);
        continue;
      }
      const size_t named = text.size() - 3;
      for (size_t k = rank - named; k > 0; --k) letters.push_back(static_cast<char>(k));
      i += 2;
    }
    return letters;
  }

  void check_part(const std::string& text) const {
    std::string rest = text;
    if (const size_t dots = rest.find("..."); dots != std::string::npos) rest.erase(dots, 3);
    for (char letter : rest) {
      const bool known = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
      if (!known) throw t_.error("its equation is not valid");
    }
  }

  void read_equation() {
    std::string equation = t_.attributes().text("equation", "");
    std::erase(equation, ' ');
    const size_t arrow = equation.find("->");
    std::string inputs = equation.substr(0, arrow);
    for (size_t start = 0; start <= inputs.size();) {
      const size_t comma = std::min(inputs.find(',', start), inputs.size());
      const std::string part = inputs.substr(start, comma - start);
      start = comma + 1;
      check_part(part);
      const size_t i = parts_.size();
      if (i >= t_.input_count()) break;
      const size_t named = part.find("...") == std::string::npos ? part.size() : part.size() - 3;
      const size_t rank = t_.shape(i).size();
      if (rank < named || (named == part.size() && rank != named))
        throw t_.error("its equation does not fit " + to_string(t_.shape(i)));
      if (rank - named > 16) throw t_.error("its inputs have too many dimensions");
      most_dots_ = std::max(most_dots_, rank - named);
      parts_.push_back(letters_of(part, rank));
    }
    const auto commas = static_cast<size_t>(std::count(inputs.begin(), inputs.end(), ','));
    if (parts_.size() != t_.input_count() || commas + 1 != parts_.size())
      throw t_.error("its equation does not fit its inputs");
    if (arrow == std::string::npos) {
      implicit_output();
    } else {
      const std::string text = equation.substr(arrow + 2);
      check_part(text);
      const bool dots = text.find("...") != std::string::npos;
      output_ = letters_of(text, dots ? text.size() - 3 + most_dots_ : text.size());
    }
    check_output();
  }

  /// Builds the implicit output: letters that occur once, in alphabetical order, after the
  /// ellipsis.
  void implicit_output() {
    std::map<char, int> count;
    for (const Letters& part : parts_) {
      for (char letter : part) ++count[letter];
    }
    for (size_t k = most_dots_; k > 0; --k) output_.push_back(static_cast<char>(k));
    for (const auto& [letter, times] : count) {
      if (!is_ellipsis(letter) && times == 1) output_.push_back(letter);
    }
  }

  void check_output() const {
    const std::set<char> different(output_.begin(), output_.end());
    if (different.size() != output_.size())
      throw t_.error("its equation repeats a letter in the output");
    for (char letter : output_) {
      const bool found = std::any_of(parts_.begin(), parts_.end(),
                                     [&](const Letters& part) { return contains(part, letter); });
      if (!found) throw t_.error("its equation has a letter in the output that is in no input");
    }
  }

  /// Returns whether the output or any operand from `first` on uses a letter.
  bool read_later(char letter, size_t first) const {
    if (contains(output_, letter)) return true;
    for (size_t i = first; i < parts_.size(); ++i) {
      if (contains(parts_[i], letter)) return true;
    }
    return false;
  }

  int64_t size_of(const Term& term, char letter) {
    const auto at = std::find(term.letters.begin(), term.letters.end(), letter);
    if (at == term.letters.end()) return 1;
    return t_.shape_of(term.value)[static_cast<size_t>(at - term.letters.begin())];
  }

  Term operand(size_t i) {
    next_ = i + 1;
    Term term{t_.real(i), parts_[i]};
    for (size_t a = 0; a < term.letters.size(); ++a) {
      for (size_t b = a + 1; b < term.letters.size();) {
        if (term.letters[a] == term.letters[b]) {
          take_diagonal(term, a, b);
        } else {
          ++b;
        }
      }
    }
    return term;
  }

  /// Moves axes a and b to the end, flattens them and keeps every (size + 1)th element.
  void take_diagonal(Term& term, size_t a, size_t b) {
    const Shape shape = t_.shape_of(term.value);
    const int64_t size = shape[a];
    if (shape[b] != size)
      throw t_.error("its equation repeats a letter for dimensions of different sizes");
    Letters rest;
    std::vector<int64_t> order;
    Shape flat;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (i == a || i == b) continue;
      order.push_back(static_cast<int64_t>(i));
      rest.push_back(term.letters[i]);
      flat.push_back(shape[i]);
    }
    order.insert(order.end(), {static_cast<int64_t>(a), static_cast<int64_t>(b)});
    rest.push_back(term.letters[a]);
    flat.push_back(checked_count({size, size}, t_.what()));
    const ValueId moved = t_.add("Transpose", {term.value}, {{"perm", order}}, "square");
    const ValueId line = t_.reshape(moved, flat, "line");
    std::vector<int64_t> places;
    for (int64_t i = 0; i < size; ++i) places.push_back(i * (size + 1));
    const auto axis = static_cast<int64_t>(flat.size()) - 1;
    const ValueId value = gather_rows(t_, line, axis, places, "diagonal");
    // Move the diagonal back to axis a, so that samples stay first.
    std::vector<int64_t> back(flat.size() - 1);
    std::iota(back.begin(), back.end(), int64_t{0});
    back.insert(back.begin() + static_cast<int64_t>(a), axis);
    const char letter = rest.back();
    rest.pop_back();
    rest.insert(rest.begin() + static_cast<int64_t>(a), letter);
    const bool moves = !std::is_sorted(back.begin(), back.end());
    term = {moves ? t_.add("Transpose", {value}, {{"perm", back}}, "diagonal_back") : value, rest};
  }

  /// Sums over letters that neither the output nor any operand from `first` on uses.
  void sum_unread(Term& term, size_t first) {
    std::vector<char> unread;
    for (char letter : term.letters) {
      if (!read_later(letter, first)) unread.push_back(letter);
    }
    sum(term, unread);
  }

  void sum(Term& term, const std::vector<char>& which) {
    if (which.empty()) return;
    std::vector<int64_t> axes;
    Letters rest;
    for (size_t i = 0; i < term.letters.size(); ++i) {
      if (std::find(which.begin(), which.end(), term.letters[i]) != which.end()) {
        axes.push_back(static_cast<int64_t>(i));
      } else {
        rest.push_back(term.letters[i]);
      }
    }
    term = {t_.add("ReduceSum", {term.value}, {{"axes", axes}, {"keepdims", int64_t{0}}}, "sum"),
            rest};
  }

  /// Transposes a term so that its letters follow this order. Letters that it lacks are left out.
  Term ordered(const Term& term, const Letters& wanted, const std::string& name) {
    std::vector<int64_t> order;
    Letters letters;
    for (char letter : wanted) {
      const auto at = std::find(term.letters.begin(), term.letters.end(), letter);
      if (at == term.letters.end()) continue;
      order.push_back(at - term.letters.begin());
      letters.push_back(letter);
    }
    if (std::is_sorted(order.begin(), order.end())) return {term.value, letters};
    return {t_.add("Transpose", {term.value}, {{"perm", order}}, suffix(name)), letters};
  }

  /// Transposes a term to this order of letters, with axes of size 1 for those that it lacks.
  ValueId spread(const Term& term, const Letters& wanted, const std::string& name) {
    const Term moved = ordered(term, wanted, name);
    Shape shape;
    for (char letter : wanted) shape.push_back(size_of(moved, letter));
    return t_.reshape(moved.value, shape, suffix(name + "_shape"));
  }

  Term product(Term a, Term b) {
    // Sum letters that only one operand has before the product, and those along which the other
    // operand would only be broadcast.
    const auto alone = [&](const Term& of, const Term& other) {
      std::vector<char> letters;
      for (char letter : of.letters) {
        const bool stretched = size_of(other, letter) == 1 || size_of(of, letter) == 1;
        if (!read_later(letter, next_) && stretched) letters.push_back(letter);
      }
      return letters;
    };
    const std::vector<char> of_a = alone(a, b), of_b = alone(b, a);
    sum(a, of_a);
    sum(b, of_b);
    // The operand that has the first unshared letter of the output becomes the left one.
    for (char letter : output_) {
      if (contains(a.letters, letter) == contains(b.letters, letter)) continue;
      if (contains(b.letters, letter)) std::swap(a, b);
      break;
    }
    Letters batch, rows, columns, summed;
    for (const Letters& from : {output_, a.letters, b.letters}) {
      for (char letter : from) {
        const bool in_a = contains(a.letters, letter), in_b = contains(b.letters, letter);
        Letters& group = !in_a                       ? columns
                         : !in_b                     ? rows
                         : read_later(letter, next_) ? batch
                                                     : summed;
        if ((in_a || in_b) && !contains(group, letter)) group.push_back(letter);
      }
    }
    for (char letter : batch) check_sizes(a, b, letter, true);
    for (char letter : summed) check_sizes(a, b, letter, false);
    Letters all = batch;
    all.insert(all.end(), rows.begin(), rows.end());
    all.insert(all.end(), columns.begin(), columns.end());
    if (summed.empty()) {
      // Follow the order of the output as far as possible, so that samples come first.
      Letters order;
      for (const Letters& from : {output_, all}) {
        for (char letter : from) {
          if (contains(all, letter) && !contains(order, letter)) order.push_back(letter);
        }
      }
      const ValueId left = spread(a, order, "a"), right = spread(b, order, "b");
      return {t_.add("Mul", {left, right}, {}, suffix("product")), order};
    }
    const ValueId left = matrices(a, batch, rows, summed, "a", true);
    const ValueId right = matrices(b, batch, summed, columns, "b", false);
    const ValueId y = t_.add("MatMul", {left, right}, {}, suffix("product"));
    Shape shape;
    for (char letter : batch) shape.push_back(std::max(size_of(a, letter), size_of(b, letter)));
    for (char letter : rows) shape.push_back(size_of(a, letter));
    for (char letter : columns) shape.push_back(size_of(b, letter));
    return {t_.reshape(y, shape, suffix("axes")), all};
  }

  void check_sizes(const Term& a, const Term& b, char letter, bool stretches) {
    const int64_t x = size_of(a, letter), y = size_of(b, letter);
    if (x == y || (stretches && (x == 1 || y == 1))) return;
    throw t_.error("dimensions of " + std::to_string(x) + " and " + std::to_string(y) +
                   " have the same letter");
  }

  /// Returns a term as [batch ..., first, second]. Without a batch, the left operand's rows stay
  /// separate.
  ValueId matrices(const Term& term, const Letters& batch, const Letters& first,
                   const Letters& second, const std::string& name, bool left) {
    Letters order = batch;
    order.insert(order.end(), first.begin(), first.end());
    order.insert(order.end(), second.begin(), second.end());
    const Term moved = ordered(term, order, name);
    Shape shape;
    for (char letter : batch) shape.push_back(size_of(moved, letter));
    const auto joined = [&](const Letters& letters) {
      int64_t size = 1;
      for (char letter : letters) size *= size_of(moved, letter);
      return size;
    };
    if (left && batch.empty() && !first.empty()) {
      for (char letter : first) shape.push_back(size_of(moved, letter));
    } else {
      shape.push_back(joined(first));
    }
    shape.push_back(joined(second));
    return t_.reshape(moved.value, shape, suffix(name + "_matrix"));
  }

  Translation& t_;
  std::vector<Letters> parts_{};
  std::vector<Term> operands_{};
  Letters output_{};
  size_t most_dots_ = 0;
  size_t next_ = 1;  ///< the first operand that is not used yet
};

void einsum(Translation& t) {
  if (t.input_count() == 0) throw t.error("its inputs are missing");
  Einsum(t).run();
}

constexpr Translator kEinsumTranslators[] = {{"Einsum", einsum}};

}  // namespace

std::span<const Translator> einsum_translators() { return kEinsumTranslators; }

}  // namespace halfscope::onnx_files
