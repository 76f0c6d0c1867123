// SPDX-License-Identifier: MIT
// Tables of functions (gpu/bodies/function_tables.h) that the steps of a program share. They are
// filled when a step is made, so no step fills them again.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "gpu/bodies/elementwise.h"
#include "gpu/bodies/function_tables.h"
#include "gpu/engine/node_call.h"

namespace halfscope::gpu {

/// The tables of a program, by function and by how its operand is stored.
class FunctionTables {
 public:
  /// Returns the table `key`, which make() makes the first time.
  template <class F>
  const void* get(const std::string& key, const F& make) {
    const auto [found, is_new] = tables_.try_emplace(key, nullptr);
    if (is_new) found->second = make();
    return found->second;
  }
  size_t size() const { return tables_.size(); }

 private:
  std::map<std::string, const void*> tables_;
};

/// Returns how many codes a storage has, or 0 if they are too many for a table.
inline int64_t codes_of(Storage storage) {
  return bytes_of(storage) <= 2 ? int64_t{1} << (8 * bytes_of(storage)) : 0;
}

/// Returns whether a table for operand `i` pays: it has as many elements as there are codes.
template <class X>
bool table_pays(const NodeCall<X, float>& c, size_t i) {
  const int64_t codes = codes_of(c.in[i].storage());
  return c.tables != nullptr && codes > 0 && c.in_count(i) >= codes &&
         c.in_count(i) == c.out_count(0);
}

/// Returns all codes of operand `i`'s storage, as an operand.
template <class X>
In<float> all_codes(const NodeCall<X, float>& c, size_t i) {
  const Storage storage = c.in[i].storage();
  const int64_t bytes = bytes_of(storage), count = codes_of(storage);
  const auto make = [&] {
    std::vector<uint8_t> codes(static_cast<size_t>(count * bytes));
    for (int64_t code = 0; code < count; ++code) {
      for (int64_t byte = 0; byte < bytes; ++byte) {  // devices are little-endian
        codes[static_cast<size_t>(code * bytes + byte)] = static_cast<uint8_t>(code >> (8 * byte));
      }
    }
    void* const memory = c.executor->allocate(codes.size());
    c.executor->upload(memory, codes.data(), codes.size());
    return static_cast<const void*>(memory);
  };
  return {c.tables->get("codes of " + std::to_string(bytes) + " bytes", make), storage};
}

/// Returns a key of the node's function, of its attributes, and of the storage of its operand `i`.
template <class X>
std::string table_key(const NodeCall<X, float>& c, size_t i) {
  std::string key = c.node->op;
  for (const auto& [name, attribute] : c.node->attributes) {
    key += "|" + name + "=";
    if (const auto* whole = std::get_if<int64_t>(&attribute)) key += std::to_string(*whole);
    if (const auto* real = std::get_if<double>(&attribute)) {
      key += std::to_string(std::bit_cast<uint64_t>(*real));
    }
  }
  return key + "|" + std::to_string(static_cast<int>(c.in[i].storage()));
}

/// Launches the items that fill a table for these codes.
template <class X, class Entry>
using FillTable = void (*)(X&, int64_t count, const In<float>& codes, Entry* table,
                           const void* function);

/// Returns the node's table for operand `i`, filled by a function that `rest` tells from others of
/// the same node.
template <class Entry, class X>
const Entry* table_of(const NodeCall<X, float>& c, size_t i, const std::string& rest,
                      FillTable<X, Entry> fill, const void* function) {
  const In<float> codes = all_codes(c, i);
  const auto make = [&] {
    const int64_t count = codes_of(codes.storage());
    const size_t bytes = static_cast<size_t>(count) * sizeof(Entry);
    auto* const table = static_cast<Entry*>(c.executor->allocate(bytes));
    fill(*c.executor, count, codes, table, function);
    return static_cast<const void*>(table);
  };
  return static_cast<const Entry*>(c.tables->get(table_key(c, i) + "|" + rest, make));
}

/// Makes the step of a function of one operand if looking up its results pays; otherwise returns
/// nothing.
template <class X, class T, class Operation>
Step table_step(const NodeCall<X, T>& c, const Operation& operation) {
  if constexpr (std::is_same_v<T, float>) {
    if (!table_pays(c, 0)) return {};
    const auto fill = [](X& executor, int64_t count, const In<float>& codes, float* table,
                         const void* function) {
      executor.items(
          count, Unary<float, Operation>{codes, table, *static_cast<const Operation*>(function)});
    };
    // Results depend on the format to which they will be rounded.
    const float* const table =
        table_of<float, X>(c, 0, format_name(c.out_format(0)), fill, &operation);
    const int64_t n = c.out_count(0);
    return items_step(*c.executor, items_of_several(n), LookUp{c.in[0], c.out[0], n, table});
  }
  return {};
}

/// Makes the step of a gradient of (dy, x) if looking up its slow part pays; otherwise returns
/// nothing.
template <class X, class T, class Function>
Step gradient_table_step(const NodeCall<X, T>& c, const Function& f) {
  if constexpr (std::is_same_v<T, float>) {
    const int64_t n = c.out_count(0);
    if (!table_pays(c, 1) || c.in_count(0) != n) return {};
    const auto fill = [](X& executor, int64_t count, const In<float>& codes, double* table,
                         const void* function) {
      executor.items(count,
                     SlowParts<Function>{codes, table, *static_cast<const Function*>(function)});
    };
    const double* const table = table_of<double, X>(c, 1, "slow part", fill, &f);
    return items_step(
        *c.executor, items_of_several(n),
        LookUpGradient<Function>{c.in[0], c.in[1], c.out[0], n, table, f, c.out_format(0)});
  }
  return {};
}

}  // namespace halfscope::gpu
