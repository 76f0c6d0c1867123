// SPDX-License-Identifier: MIT
#include "cli/tasks/fprev_backend.h"

#include <algorithm>
#include <vector>

namespace halfscope {

BackendProduct::BackendProduct(const Backend& backend, const ProbedProduct& product)
    : product_(product) {
  Executable executable;
  executable.forward = Entry::eval;
  Graph& graph = executable.graph;
  a_ = graph.add_input("a", {product.rows, product.k});
  b_ = graph.add_input("b", {product.columns, product.k});
  graph.value(a_).format = graph.value(b_).format = product.input;
  y_ = graph.add1("Gemm", "product", {a_, b_}, {{"transB", int64_t{1}}});
  node_ = graph.value(y_).producer;
  NodePlan& plan = graph.node(node_).plan;
  plan.read = product.input;
  plan.accumulation = product.accumulation;
  executable.inputs = {{"a", a_}, {"b", b_}};
  executable.outputs = {{"y", y_}};
  executable.entries[static_cast<size_t>(Entry::eval)] = {node_};
  program_ = backend.compile(executable);
}

void BackendProduct::dot(std::span<const float> a, std::span<const float> b, std::span<float> out) {
  const size_t k = static_cast<size_t>(product_.k);
  const size_t columns = static_cast<size_t>(product_.columns);
  const size_t at_once = static_cast<size_t>(std::min(product_.rows, product_.columns));
  std::vector<float> left(static_cast<size_t>(product_.rows) * k), right(columns * k);
  for (size_t first = 0; first < out.size(); first += at_once) {
    const size_t count = std::min(at_once, out.size() - first);
    std::ranges::copy(a.subspan(first * k, count * k), left.begin());
    std::ranges::copy(b.subspan(first * k, count * k), right.begin());
    program_->write(a_, std::span<const float>(left));
    program_->write(b_, std::span<const float>(right));
    program_->run(Entry::eval, {});
    const Tensor y = program_->read(y_);
    for (size_t r = 0; r < count; ++r) out[first + r] = y.data[r * columns + r];
  }
}

std::string BackendProduct::kernel() const { return program_->kernel_of(node_); }

}  // namespace halfscope
