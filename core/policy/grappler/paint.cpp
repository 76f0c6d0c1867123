// SPDX-License-Identifier: MIT
// The phases, in TensorFlow's order. Where TensorFlow walks depth first, we walk breadth first: the
// same vertices are reached, and the remembered paths are the shortest.
#include "core/policy/grappler/paint.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "core/error.h"
#include "core/policy/grappler/device_name.h"
#include "core/policy/grappler/op_kinds.h"
#include "core/policy/grappler/type_graph.h"

namespace halfscope::grappler {
namespace {

constexpr size_t kNobody = SIZE_MAX;
constexpr int kOldestFastGpu = 70;

class Painter {
 public:
  Painter(const TfGraph& graph, const AmpOptions& options)
      : source_(graph), graph_(with_batch_norm_v2(graph, options)), types_(graph_) {
    result_.options = options;
    result_.lists = amp_lists(options);
    target_ = options.target();
    const size_t count = types_.vertices().size();
    allow_.assign(count, false);
    deny_.assign(count, false);
    why_.assign(count, AmpWhy::not_listed);
    parent_.assign(count, kNobody);
    after_.assign(count, kNobody);
    for (const TfNode& node : graph_.nodes) {
      process_.push_back(skip_reason(node, options) == AmpWhy::allowed);
      list_.push_back(result_.lists.list_of(node.op));
    }
  }

  AmpPainting run() {
    find_tensor_lists();
    allow_seeds();
    if (std::find(allow_.begin(), allow_.end(), true) == allow_.end()) {
      result_.skipped = true;
      result_.log = "No allowlist ops found, nothing to do";
      finish();
      return std::move(result_);
    }
    spread_denial();
    match_tensor_lists();
    paint_between();
    paint_followers();
    spread_through_clear();
    remove_unsupported();
    match_tensor_lists();
    match_loops();
    paint_casts();
    insert_casts();
    finish();
    return std::move(result_);
  }

 private:
  const TfNode& node_of(size_t v) const { return graph_.nodes[types_.vertex(v).node]; }
  bool processes(size_t v) const { return process_[types_.vertex(v).node]; }
  bool on_list(size_t v, AmpList list) const { return list_[types_.vertex(v).node] == list; }
  bool is_float(size_t v) const { return types_.vertex(v).type == kTfFloat; }
  size_t count() const { return types_.vertices().size(); }
  /// A function of the graph may have the name of an operator.
  bool is_builtin(size_t node, std::string_view op) const {
    return graph_.nodes[node].op == op && !types_.op(node).is_function;
  }

  /// Returns AmpWhy::allowed for nodes that may change.
  static AmpWhy skip_reason(const TfNode& node, const AmpOptions& options) {
    if (options.preserve.contains(node.name)) return AmpWhy::preserved;
    const auto kept = node.attrs.find("_grappler_do_not_remove");
    if (kept != node.attrs.end() && kept->second.b) return AmpWhy::preserved;
    const bool has_gpu = options.compute_capability > 0;
    if (!is_on_device(node.device, options.on_gpu() ? "gpu" : "cpu", has_gpu ? "gpu" : "cpu"))
      return AmpWhy::other_device;
    if (options.on_gpu() && !options.ignore_performance &&
        options.compute_capability < kOldestFastGpu) {
      return AmpWhy::slow_device;
    }
    return AmpWhy::allowed;
  }

  /// V2 keeps scale, offset and statistics in a type of their own, which stays float32.
  static TfGraph with_batch_norm_v2(TfGraph graph, const AmpOptions& options) {
    for (TfNode& node : graph.nodes) {
      if (node.op != "FusedBatchNorm" && node.op != "FusedBatchNormGrad") continue;
      if (skip_reason(node, options) != AmpWhy::allowed) continue;
      node.op += "V2";
      node.attrs["U"].type = kTfFloat;
    }
    return graph;
  }

  bool accepts_target(size_t v) const {
    const TypeVertex& vertex = types_.vertex(v);
    const TfOp& op = types_.op(vertex.node);
    if (op.is_function) return false;
    if (vertex.id.attr.empty()) return vertex.id.fixed == target_;
    const TfTypeAttr* attr = op.attr(vertex.id.attr);
    return attr != nullptr && (attr->allowed == 0 || (attr->allowed & tf_type_bit(target_)) != 0);
  }

  /// Returns whether a kernel takes the node with this one attribute changed.
  bool has_kernel(size_t v) const {
    const TypeVertex& vertex = types_.vertex(v);
    const TfOp& op = types_.op(vertex.node);
    if (vertex.id.attr.empty()) return false;
    const auto range = types_.vertices_of(vertex.node);
    const auto fits = [&](const TfKernel& kernel) {
      return std::all_of(kernel.begin(), kernel.end(), [&](const auto& constraint) {
        bool known = op.attr(constraint.first) != nullptr && op.attr(constraint.first)->list;
        for (size_t other = range.first; other < range.second; ++other) {
          const TypeVertex& each = types_.vertex(other);
          if (each.id.attr != constraint.first) continue;
          known = true;
          const TfType type = other == v ? target_ : each.type;
          if ((constraint.second & tf_type_bit(type)) == 0) return false;
        }
        return known;
      });
    };
    const std::vector<TfKernel>& kernels = result_.options.on_gpu() ? op.gpu : op.cpu;
    return std::any_of(kernels.begin(), kernels.end(), fits);
  }

  bool supports_target(size_t v) const { return accepts_target(v) && has_kernel(v); }

  /// Walks from `roots` along inputs or outputs to all vertices that `enter` lets in, and notes
  /// where each was reached from. Returns which were reached, roots included.
  enum class Along { inputs, outputs, both };
  template <class Enter>
  std::vector<bool> reach(const std::vector<size_t>& roots, Along along, const Enter& enter,
                          std::vector<size_t>* parents = nullptr) const {
    std::vector<bool> seen(count(), false);
    std::deque<size_t> queue;
    for (const size_t root : roots) {
      if (seen[root]) continue;
      seen[root] = true;
      queue.push_back(root);
    }
    while (!queue.empty()) {
      const size_t v = queue.front();
      queue.pop_front();
      const auto visit = [&](const std::vector<size_t>& next) {
        for (const size_t w : next) {
          if (seen[w] || !enter(w)) continue;
          seen[w] = true;
          if (parents != nullptr) (*parents)[w] = v;
          queue.push_back(w);
        }
      };
      if (along != Along::outputs) visit(types_.vertex(v).from);
      if (along != Along::inputs) visit(types_.vertex(v).to);
    }
    return seen;
  }

  template <class Wanted>
  std::vector<size_t> where(const Wanted& wanted) const {
    std::vector<size_t> found;
    for (size_t v = 0; v < count(); ++v) {
      if (wanted(v)) found.push_back(v);
    }
    return found;
  }

  void allow(size_t v, AmpWhy why, size_t because = kNobody) {
    if (allow_[v]) return;
    allow_[v] = true;
    if (deny_[v]) return;  // a TensorList, which will lose the paint again
    why_[v] = why;
    parent_[v] = because;
  }

  void deny(size_t v, AmpWhy why, size_t because = kNobody) {
    if (deny_[v]) return;
    deny_[v] = true;
    why_[v] = why;
    parent_[v] = because;
  }

  /// Returns the vertex of the elements of a TensorList operator, or kNobody.
  size_t list_elements(size_t node) const {
    if (graph_.nodes[node].op.find("TensorList") == std::string::npos) return kNobody;
    const auto [begin, end] = types_.vertices_of(node);
    for (size_t v = begin; v < end; ++v) {
      const TypeId& id = types_.vertex(v).id;
      if (id.fixed == 0 && id.index < 0 && is_float(v)) return v;
    }
    return kNobody;
  }

  /// The type of a list's elements is not in the graph's edges, only that of the list (variant).
  /// Operators of the same list form a cluster that has one colour; implicit edges lead from those
  /// that write elements to those that read them.
  void find_tensor_lists() {
    std::vector<std::pair<size_t, size_t>> edges;
    const auto anywhere = [](size_t) { return true; };
    std::vector<size_t> denied_in(graph_.nodes.size(), kNobody);  // by node: the unsafe vertex
    std::vector<bool> clustered(graph_.nodes.size(), false);
    for (size_t root = 0; root < count(); ++root) {
      const size_t node = types_.vertex(root).node;
      if (!process_[node] || types_.vertex(root).id.fixed != kTfVariant ||
          list_elements(node) == kNobody) {
        continue;
      }
      if (!clustered[node]) {
        std::vector<size_t> cluster;
        size_t unsafe = kNobody;
        const std::vector<bool> reached = reach({root}, Along::both, anywhere);
        for (size_t v = 0; v < count(); ++v) {
          if (!reached[v]) continue;
          const size_t member = types_.vertex(v).node;
          const bool is_list = list_elements(member) != kNobody;
          if (is_list) cluster.push_back(member);
          const bool leaves =
              is_list ? !process_[member]
                      : is_source_or_sink(graph_.nodes[member].op) || types_.op(member).is_function;
          if (leaves && unsafe == kNobody) unsafe = v;
        }
        std::sort(cluster.begin(), cluster.end());
        cluster.erase(std::unique(cluster.begin(), cluster.end()), cluster.end());
        for (const size_t member : cluster) {
          clustered[member] = true;
          denied_in[member] = unsafe;
          if (reads_list(graph_.nodes[member].op)) add_list_edges(member, edges);
        }
        clusters_.push_back(std::move(cluster));
      }
      // As in TensorFlow, operators that it does not process are denied with the cluster, later.
      if (denied_in[node] != kNobody)
        deny(list_elements(node), AmpWhy::unsafe_list, denied_in[node]);
    }
    types_.add_edges(edges);
  }

  void add_list_edges(size_t reader, std::vector<std::pair<size_t, size_t>>& edges) const {
    const size_t root = types_.find(reader, {.fixed = kTfVariant});
    const auto processed = [&](size_t v) { return processes(v); };
    if (root == kNobody || !processes(root)) return;
    const std::vector<bool> reached = reach({root}, Along::inputs, processed);
    for (size_t v = 0; v < count(); ++v) {
      if (!reached[v] || !writes_list(node_of(v).op)) continue;
      const size_t written = list_elements(types_.vertex(v).node);
      if (written != kNobody) edges.emplace_back(written, list_elements(reader));
    }
  }

  void allow_seeds() {
    const bool force = result_.options.level == AmpLevel::unsafe_force_all;
    for (size_t v = 0; v < count(); ++v) {
      if (!processes(v)) continue;
      const TfOp& op = types_.op(types_.vertex(v).node);
      if (on_list(v, AmpList::allow)) {
        allow(v, AmpWhy::allowed);
      } else if (force && op.name != "Const" && op.name != "SoftmaxCrossEntropyWithLogits" &&
                 !op.stateful && !op.has_refs && !op.is_function) {
        allow(v, AmpWhy::forced);
      }
    }
  }

  /// Denial goes downstream through infer and clear operators, as far as the last infer or deny
  /// operator: clear ones after it are not affected.
  void spread_denial() {
    if (result_.options.level == AmpLevel::unsafe_force_all) return;
    const std::vector<size_t> roots =
        where([&](size_t v) { return on_list(v, AmpList::deny) || on_list(v, AmpList::infer); });
    const std::vector<bool> upstream =
        reach(roots, Along::inputs, [&](size_t v) { return on_list(v, AmpList::clear); });
    const std::vector<bool> before = deny_;
    const std::vector<size_t> denied =
        where([&](size_t v) { return on_list(v, AmpList::deny) && !before[v]; });
    std::vector<size_t> parents(count(), kNobody);
    const std::vector<bool> reached = reach(
        denied, Along::outputs, [&](size_t v) { return upstream[v] && !before[v]; }, &parents);
    for (size_t v = 0; v < count(); ++v) {
      if (!reached[v]) continue;
      deny(v, on_list(v, AmpList::deny) ? AmpWhy::denied : AmpWhy::denied_by,
           on_list(v, AmpList::deny) ? kNobody : parents[v]);
    }
  }

  void match_tensor_lists() {
    for (const std::vector<size_t>& cluster : clusters_) {
      size_t denied = kNobody, allowed = kNobody;
      for (const size_t node : cluster) {
        const size_t v = list_elements(node);
        if (deny_[v] && denied == kNobody) denied = v;
        if (allow_[v] && allowed == kNobody) allowed = v;
      }
      for (const size_t node : cluster) {
        const size_t v = list_elements(node);
        if (denied != kNobody) {
          allow_[v] = false;
          deny(v, AmpWhy::list_denied, denied);
        } else if (allowed != kNobody) {
          allow(v, AmpWhy::list_painted, allowed);
        }
      }
    }
  }

  void paint_between() {
    const std::vector<size_t> roots =
        where([&](size_t v) { return processes(v) && on_list(v, AmpList::allow); });
    std::vector<size_t> before(count(), kNobody), after(count(), kNobody);
    const std::vector<bool> downstream = reach(
        roots, Along::outputs,
        [&](size_t v) {
          return !on_list(v, AmpList::allow) && !deny_[v] && processes(v) && is_float(v) &&
                 supports_target(v) && (on_list(v, AmpList::clear) || on_list(v, AmpList::infer));
        },
        &before);
    const std::vector<bool> upstream = reach(
        roots, Along::inputs, [&](size_t v) { return downstream[v]; }, &after);
    for (size_t v = 0; v < count(); ++v) {
      if (!upstream[v] || allow_[v]) continue;
      allow(v, AmpWhy::between, before[v]);
      after_[v] = after[v];
    }
  }

  /// In the order of the nodes: each one painted can make the next one follow.
  void paint_followers() {
    if (!result_.options.followers && target_ != kTfBfloat16) return;
    for (size_t v = 0; v < count(); ++v) {
      if (!processes(v) || deny_[v] || allow_[v] || !on_list(v, AmpList::infer) || !is_float(v) ||
          !accepts_target(v)) {
        continue;
      }
      const std::vector<size_t>& from = types_.vertex(v).from;
      const auto painted =
          std::find_if(from.begin(), from.end(), [&](size_t w) { return allow_[w]; });
      const bool denied = std::any_of(from.begin(), from.end(), [&](size_t w) { return deny_[w]; });
      if (painted != from.end() && !denied) allow(v, AmpWhy::follows, *painted);
    }
  }

  void spread_through_clear() {
    const std::vector<bool> before = allow_;
    const std::vector<size_t> roots = where([&](size_t v) { return processes(v) && before[v]; });
    std::vector<size_t> parents(count(), kNobody);
    const std::vector<bool> reached = reach(
        roots, Along::both,
        [&](size_t v) {
          return !before[v] && !deny_[v] && processes(v) && is_float(v) && supports_target(v) &&
                 on_list(v, AmpList::clear) && !reads_variable(types_.vertex(v).node);
        },
        &parents);
    for (size_t v = 0; v < count(); ++v) {
      if (reached[v]) allow(v, AmpWhy::connected, parents[v]);
    }
  }

  void remove_unsupported() {
    for (size_t v = 0; v < count(); ++v) {
      if (!allow_[v] || !on_list(v, AmpList::allow)) continue;
      const auto [begin, end] = types_.vertices_of(types_.vertex(v).node);
      bool quantized = false;
      for (size_t w = begin; w < end; ++w) quantized |= is_quantized(types_.vertex(w).type);
      if (accepts_target(v) && !quantized) continue;
      allow_[v] = false;
      why_[v] = AmpWhy::no_type;
    }
  }

  void match_loops() {
    for (size_t node = 0; node < graph_.nodes.size(); ++node) {
      if (!is_builtin(node, "NextIteration")) continue;
      const TypeId id{.attr = "T"};
      std::vector<size_t> merges;
      for (const Port& reader : types_.readers({node, 0})) {
        if (!is_builtin(reader.node, "Merge")) {
          throw Error(
              fmt::format("TensorFlow cannot paint this graph: '{}' (NextIteration) goes to "
                          "'{}' ({}), not to a Merge",
                          graph_.nodes[node].name, graph_.nodes[reader.node].name,
                          graph_.nodes[reader.node].op),
              "export the graph with its loops intact");
        }
        merges.push_back(types_.find(reader.node, id));
      }
      const size_t next = types_.find(node, id);
      const auto broken =
          std::find_if(merges.begin(), merges.end(), [&](size_t v) { return !allow_[v]; });
      if (broken == merges.end()) {
        allow(next, AmpWhy::loop_painted, merges.empty() ? kNobody : merges.front());
        continue;
      }
      const size_t blocker = *broken;  // push_back() moves the elements
      merges.push_back(next);
      for (const size_t v : merges) {
        if (!allow_[v]) continue;
        allow_[v] = false;
        why_[v] = AmpWhy::loop_broken;
        parent_[v] = blocker;
      }
    }
  }

  void paint_casts() {
    for (size_t node = 0; node < graph_.nodes.size(); ++node) {
      if (!is_builtin(node, "Cast")) continue;
      const size_t v = types_.find(node, {.attr = "DstT"});
      if (!is_float(v)) continue;
      const std::vector<Port>& readers = types_.readers({node, 0});
      const bool all = std::all_of(readers.begin(), readers.end(), [&](const Port& reader) {
        return allow_[types_.of_input(reader)];
      });
      if (!readers.empty() && all) {
        allow(v, AmpWhy::cast_painted, types_.of_input(readers.front()));
      }
    }
  }

  /// Returns whether an Identity or Enter reads a variable that is a reference. `moved` are the
  /// inputs that read an inserted cast by now.
  bool reads_variable(size_t node, const std::vector<std::vector<bool>>* moved = nullptr) const {
    for (;;) {  // a graph has no cycle of Enter
      const std::string& op = graph_.nodes[node].op;
      if ((op != "Identity" && op != "Enter") || types_.inputs(node) == 0) return false;
      if (moved != nullptr && (*moved)[node][0]) return false;
      const size_t from = types_.source({node, 0}).node;
      const std::string& before = graph_.nodes[from].op;
      if (op == "Identity") return before == "Variable" || before == "VariableV2";
      node = from;
    }
  }

  void insert_casts() {
    std::set<std::string, std::less<>> names;
    for (const TfNode& node : graph_.nodes) names.insert(node.name);
    std::vector<std::vector<bool>> moved;
    for (size_t node = 0; node < graph_.nodes.size(); ++node)
      moved.emplace_back(types_.inputs(node), false);
    for (size_t v = 0; v < count(); ++v) {
      if (!is_float(v)) continue;
      const TypeVertex& vertex = types_.vertex(v);
      if (allow_[v]) {
        if (vertex.id.attr.empty()) {
          throw Error(fmt::format("TensorFlow cannot paint this graph: '{}' ({}) would have to "
                                  "change operands that are always float32",
                                  node_of(v).name, node_of(v).op),
                      "choose a level other than UNSAFE_FORCE_ALL");
        }
        ++result_.changed;
      }
      for (const size_t port : vertex.out_ports) insert_cast({vertex.node, port}, v, names, moved);
    }
    for (const AmpCast& cast : result_.casts) result_.counted_casts += cast.counted ? 1 : 0;
    const std::string type = result_.options.target_name();
    result_.log = fmt::format(
        "Converted {}/{} nodes to {} precision using {} cast(s) to {} (excluding Const and "
        "Variable casts)",
        result_.changed, graph_.nodes.size(), type, result_.counted_casts, type);
  }

  void insert_cast(Port output, size_t v, std::set<std::string, std::less<>>& names,
                   std::vector<std::vector<bool>>& moved) {
    AmpCast cast;
    cast.node = output.node;
    cast.port = output.port;
    cast.to_target = !allow_[v];
    for (const Port& reader : types_.readers(output)) {
      if (allow_[types_.of_input(reader)] != allow_[v])
        cast.readers.emplace_back(reader.node, reader.port);
    }
    if (cast.readers.empty()) return;
    const char* kind = !cast.to_target      ? "CastToFp32"
                       : target_ == kTfHalf ? "CastToFp16"
                                            : "CastToBf16";
    const TfNode& from = graph_.nodes[output.node];
    for (int id = 0;; ++id) {
      cast.name = fmt::format("{}-{}-{}-{}-AutoMixedPrecision", from.name, output.port, kind, id);
      if (names.insert(cast.name).second) break;
    }
    cast.counted = cast.to_target && from.op != "Const" && !is_variable(from.op) &&
                   !reads_variable(output.node, &moved);
    for (const auto& [node, port] : cast.readers) moved[node][port] = true;
    result_.casts.push_back(std::move(cast));
  }

  /// Decides why a vertex without paint has none.
  AmpWhy why_not(size_t v, size_t& because) const {
    const AmpWhy skip = skip_reason(node_of(v), result_.options);
    if (skip != AmpWhy::allowed) return skip;
    if (!list_[types_.vertex(v).node]) return AmpWhy::not_listed;
    if (!accepts_target(v)) return AmpWhy::no_type;
    if (on_list(v, AmpList::clear)) {
      if (!has_kernel(v)) return AmpWhy::no_kernel;
      return reads_variable(types_.vertex(v).node) ? AmpWhy::reads_variable : AmpWhy::not_connected;
    }
    for (const size_t w : types_.vertex(v).from) {
      if (!deny_[w]) continue;
      because = w;
      return AmpWhy::reads_denied;
    }
    return has_kernel(v) ? AmpWhy::no_allow : AmpWhy::no_kernel;
  }

  void finish() {
    for (size_t v = 0; v < count(); ++v) {
      AmpPaint paint;
      paint.node = types_.vertex(v).node;
      paint.attr = types_.vertex(v).id.text();
      paint.is_float = is_float(v);
      paint.changed = allow_[v] && paint.is_float && !result_.skipped;
      paint.color = allow_[v] ? AmpColor::allow : deny_[v] ? AmpColor::deny : AmpColor::none;
      const bool removed = why_[v] == AmpWhy::no_type || why_[v] == AmpWhy::loop_broken;
      size_t because = parent_[v];
      if (!paint.is_float) {
        paint.why = AmpWhy::other_type;
      } else if (allow_[v] || deny_[v] || removed) {
        paint.why = why_[v];
      } else {
        paint.why = result_.skipped ? AmpWhy::nothing_to_do : why_not(v, because);
      }
      for (size_t w = because; w != kNobody && paint.path.size() < count(); w = parent_[w]) {
        paint.path.insert(paint.path.begin(), w);
        if (paint.why != AmpWhy::between && paint.why != AmpWhy::denied_by &&
            paint.why != AmpWhy::connected) {
          break;
        }
        if (why_[w] != paint.why) break;
      }
      for (size_t w = after_[v]; w != kNobody && paint.after.size() < count(); w = after_[w])
        paint.after.push_back(w);
      result_.paints.push_back(std::move(paint));
    }
    for (size_t node = 0; node < graph_.nodes.size(); ++node) {
      if (graph_.nodes[node].op != source_.nodes[node].op)
        result_.renamed_nodes.push_back(graph_.nodes[node].name);
    }
    summarize();
  }

  void summarize() {
    AmpSummary& sum = result_.summary;
    for (size_t node = 0; node < graph_.nodes.size(); ++node) {
      if (!process_[node]) continue;
      ++sum.processable;
      if (list_[node]) ++sum.recognized;
      const auto [begin, end] = types_.vertices_of(node);
      bool changed = false, blocked = false;
      for (size_t v = begin; v < end; ++v) {
        changed |= result_.paints[v].changed;
        blocked |= deny_[v];
      }
      if (changed) ++sum.converted;
      if (changed && list_[node] == AmpList::allow) ++sum.allowed_converted;
      if (list_[node] == AmpList::deny) {
        ++sum.blocking;
      } else if (blocked) {
        ++sum.blocked;
      }
    }
    sum.casts = result_.counted_casts;
  }

  const TfGraph& source_;
  TfGraph graph_;
  TypeGraph types_;
  AmpPainting result_;
  TfType target_ = kTfHalf;
  std::vector<bool> process_;                 // by node
  std::vector<std::optional<AmpList>> list_;  // by node
  std::vector<bool> allow_, deny_;
  std::vector<AmpWhy> why_;
  std::vector<size_t> parent_, after_;
  std::vector<std::vector<size_t>> clusters_;  // nodes of each TensorList
};

}  // namespace

bool AmpPainting::node_changed(size_t node) const {
  return std::any_of(paints.begin(), paints.end(),
                     [&](const AmpPaint& each) { return each.node == node && each.changed; });
}

AmpPainting paint(const TfGraph& graph, const AmpOptions& options) {
  return Painter(graph, options).run();
}

}  // namespace halfscope::grappler
