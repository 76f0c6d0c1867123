// SPDX-License-Identifier: MIT
// Levels as JSON. Strict: an unknown key is an error, because a misspelt one would change the level
// silently.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>

#include "core/error.h"
#include "core/json_keys.h"
#include "core/lab/puzzle.h"
#include "core/models/zoo/net.h"
#include "core/near_miss.h"
#include "core/policy/policy.h"

namespace halfscope::lab {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kSchema = "halfscope.puzzle/1";
constexpr int64_t kMostElements = 1 << 22, kMostSteps = 2000, kMostRanks = 4096,
                  kMostWork = int64_t{1} << 27;

/// The file, and where in it the reader is.
class LevelReader {
 public:
  LevelReader(std::string_view text, std::string name) : name_(std::move(name)), text_(text) {}

  Puzzle read() {
    if (const std::string twice = repeated_key(text_); !twice.empty()) {
      fail("", "has the key \"" + twice + "\" twice");
    }
    root_ = Json::parse(text_, nullptr, false);
    if (root_.is_discarded()) fail("", "is not valid JSON: " + json_problem(text_));
    if (!root_.is_object()) fail("", "must be a JSON object");
    check_keys(root_, "",
               {"schema", "title", "story", "plan", "seed", "network", "result", "train", "measure",
                "ok", "harm", "number", "choices", "hint", "lesson", "seen"});
    if (text("", root_, "schema") != kSchema) {
      fail("schema", std::string("must be \"") + kSchema + "\"");
    }
    Puzzle puzzle{.name = name_};
    puzzle.title = text("", root_, "title");
    puzzle.story = paragraphs("story");
    puzzle.plan = text("", root_, "plan");
    puzzle.hint = root_.contains("hint") ? text("", root_, "hint") : "";
    puzzle.seen = root_.contains("seen") ? text("", root_, "seen") : "";
    if (root_.contains("lesson")) puzzle.lesson = paragraphs("lesson");
    read_number(puzzle);
    read_choices(puzzle);
    puzzle.which = case_of(puzzle);
    try {
      static_cast<void>(puzzle.which.lane(puzzle.plan));
    } catch (const std::exception& error) {
      fail("plan", error.what());
    }
    check_paths(puzzle);
    return puzzle;
  }

 private:
  [[noreturn]] void fail(const std::string& where, const std::string& what,
                         const std::string& hint = "") const {
    throw usage_error(
        fmt::format("level '{}'{}{}: {}", name_, where.empty() ? "" : ", ", where, what),
        hint.empty() ? "see docs/reference/puzzle.md for the format of levels" : hint);
  }

  void check_keys(const Json& object, const std::string& where,
                  const std::vector<std::string>& known) const {
    if (!object.is_object()) fail(where, "must be an object");
    for (const auto& [key, value] : object.items()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      fail(where, "unknown key \"" + key + "\"",
           did_you_mean(key, known, "known keys: " + comma_list(known)));
    }
  }
  const Json& at(const std::string& where, const Json& object, const char* key) const {
    const auto found = object.find(key);
    if (found == object.end()) fail(where, std::string("needs the key \"") + key + "\"");
    return *found;
  }
  std::string text(const std::string& where, const Json& object, const char* key) const {
    const Json& value = at(where, object, key);
    if (!value.is_string()) fail(where + (where.empty() ? "" : ".") + key, "must be a string");
    return plain(where + (where.empty() ? "" : ".") + key, value.get<std::string>());
  }
  /// Returns the text. Control characters could act on a terminal.
  std::string plain(const std::string& where, const std::string& text) const {
    const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
    if (std::any_of(text.begin(), text.end(), control)) {
      fail(where, "must not contain control characters", "write paragraphs as an array of strings");
    }
    return text;
  }
  double number(const std::string& where, const Json& value) const {
    if (!value.is_number()) fail(where, "must be a number");
    const double x = value.get<double>();
    if (!(std::fabs(x) <= static_cast<double>(std::numeric_limits<float>::max()))) {
      fail(where, "is too large for fp32");
    }
    return x;
  }
  int64_t whole(const std::string& where, const Json& value, int64_t least, int64_t most) const {
    if (!value.is_number_integer() || value.get<int64_t>() < least || value.get<int64_t>() > most) {
      fail(where, fmt::format("must be a whole number from {} to {}", least, most));
    }
    return value.get<int64_t>();
  }
  std::vector<std::string> paragraphs(const char* key) const {
    const Json& value = at("", root_, key);
    if (value.is_string()) return {plain(key, value.get<std::string>())};
    std::vector<std::string> list;
    if (!value.is_array()) fail(key, "must be a string, or an array of paragraphs");
    for (const Json& each : value) {
      if (!each.is_string()) fail(key, "must contain strings");
      list.push_back(plain(key, each.get<std::string>()));
    }
    return list;
  }

  void read_number(Puzzle& puzzle) const {
    const Json& object = at("", root_, "number");
    check_keys(object, "number", {"of", "text", "weight"});
    using Of = PuzzleNumber::Of;
    const std::vector<std::pair<std::string, Of>> kinds{
        {"output", Of::output},     {"error", Of::error},     {"loss", Of::loss},
        {"weight", Of::weight},     {"average", Of::average}, {"moved", Of::moved},
        {"distinct", Of::distinct}, {"finite", Of::finite}};
    const std::string of = text("number", object, "of");
    const auto found = std::find_if(kinds.begin(), kinds.end(),
                                    [&](const auto& each) { return each.first == of; });
    if (found == kinds.end()) {
      std::vector<std::string> names;
      for (const auto& [each, kind] : kinds) names.push_back(each);
      fail("number.of", "unknown word \"" + of + "\"",
           did_you_mean(of, names, "words: " + comma_list(names)));
    }
    puzzle.number.of = found->second;
    puzzle.number.text = text("number", object, "text");
    const bool needs =
        found->second == Of::weight || found->second == Of::average || found->second == Of::moved;
    if (needs) puzzle.number.weight = text("number", object, "weight");
  }

  void read_choices(Puzzle& puzzle) const {
    const Json& list = at("", root_, "choices");
    if (!list.is_array() || list.empty() || list.size() > kMostChoices) {
      fail("choices", fmt::format("must be an array of 1 to {} choices", kMostChoices));
    }
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string where = fmt::format("choices[{}]", i);
      check_keys(list[i], where, {"text", "changes"});
      const Json& changes = at(where, list[i], "changes");
      const std::optional<PlanEdit> edit = edit_from_json(changes.dump());
      if (!edit || edit->empty()) {
        fail(where + ".changes", "is not a list of changes",
             R"(write [{"kind": "operator_fp32", "path": "NODE"}])");
      }
      for (const Change& change : edit->changes) {
        const bool format = change.kind == FixKind::format;
        if (format && !parse_format(change.text)) {
          fail(where + ".changes", "\"" + change.text + "\" is not a format");
        }
        if (change.kind == FixKind::loss_scale &&
            !(change.value >= 0x1p-30 && change.value <= 0x1p60)) {
          fail(where + ".changes", "a loss scale must be from 2^-30 to 2^60");
        }
        if (change.kind == FixKind::stochastic_rounding && change.text != "weights" &&
            change.text != "gradients") {
          fail(where + ".changes", "stochastic rounding is of \"weights\" or \"gradients\"");
        }
        if (!change.can_be_tried()) {
          fail(where + ".changes",
               fmt::format("\"{}\" changes nothing here", fix_name(change.kind)));
        }
      }
      puzzle.choices.push_back({text(where, list[i], "text"), *edit});
    }
  }

  /// Returns `count` numbers. `side` is the size of square matrices; 0 where there are none.
  std::vector<float> values(const std::string& where, const Json& json, int64_t count, int64_t side,
                            zoo::Draw& draw) const {
    if (count < 0 || count > kMostElements) fail(where, "has too many elements");
    const auto size = static_cast<size_t>(count);
    std::vector<float> list;
    if (json.is_number()) return std::vector<float>(size, static_cast<float>(number(where, json)));
    if (!json.is_array() && !json.is_object()) {
      fail(where,
           "must be a number, an array of numbers, or an object such as {\"normal\": [0, 1]}");
    }
    if (json.is_array()) {
      if (json.empty()) fail(where, "must not be empty");
      for (size_t i = 0; i < size; ++i) {
        list.push_back(static_cast<float>(number(where, json[i % json.size()])));
      }
      return list;
    }
    check_keys(json, where, {"normal", "uniform", "ramp", "diagonal", "signs", "set"});
    const auto two = [&](const char* key) {
      const Json& pair = json.at(key);
      if (!pair.is_array() || pair.size() != 2) {
        fail(where + "." + key, "must be an array of two numbers");
      }
      return std::pair(number(where, pair[0]), number(where, pair[1]));
    };
    if (json.contains("normal")) {
      const auto [mean, deviation] = two("normal");
      if (deviation < 0.0) fail(where + ".normal", "needs a deviation of at least 0");
      list = draw.normals(count, deviation, mean);
    } else if (json.contains("uniform")) {
      const auto [low, high] = two("uniform");
      if (low > high) fail(where + ".uniform", "needs the lower number first");
      list = draw.uniforms(count, low, high);
    } else if (json.contains("ramp")) {
      const auto [first, step] = two("ramp");
      for (size_t i = 0; i < size; ++i) {
        list.push_back(static_cast<float>(first + static_cast<double>(i) * step));
      }
    } else if (json.contains("signs")) {
      const double magnitude = number(where + ".signs", json.at("signs"));
      for (size_t i = 0; i < size; ++i) {
        list.push_back(static_cast<float>(draw.uniform() < 0.5 ? -magnitude : magnitude));
      }
    } else if (json.contains("diagonal")) {
      // One square matrix after another.
      if (side < 1 || count % (side * side) != 0) {
        fail(where, "\"diagonal\" needs square matrices: the last two sizes of the shape");
      }
      const std::vector<float> inner =
          values(where + ".diagonal", json.at("diagonal"), count / side, 0, draw);
      list.assign(size, 0.0f);
      const auto width = static_cast<size_t>(side);
      for (size_t i = 0; i < inner.size(); ++i) list[i * width + i % width] = inner[i];
    } else {
      fail(where, "needs \"normal\", \"uniform\", \"ramp\", \"signs\" or \"diagonal\"");
    }
    if (json.contains("set")) {
      if (!json.at("set").is_object()) fail(where + ".set", "must be an object");
      for (const auto& [index, value] : json.at("set").items()) {
        const bool digits = !index.empty() && index.size() < 9 &&
                            index.find_first_not_of("0123456789") == std::string::npos;
        if (!digits || std::stoul(index) >= size) fail(where + ".set", "has no element " + index);
        list[std::stoul(index)] = static_cast<float>(number(where + ".set", value));
      }
    }
    return list;
  }

  Shape shape_of(const std::string& where, const Json& object) const {
    const Json& list = at(where, object, "shape");
    if (!list.is_array()) fail(where + ".shape", "must be an array");
    Shape shape;
    int64_t count = 1;
    for (const Json& each : list) {
      shape.push_back(whole(where + ".shape", each, 1, kMostElements));
      count *= shape.back();
      if (count > kMostElements) fail(where + ".shape", "has too many elements");
    }
    return shape;
  }

  static int64_t side_of(const Shape& shape) {
    const size_t rank = shape.size();
    return rank >= 2 && shape[rank - 1] == shape[rank - 2] ? shape.back() : 0;
  }

  Attributes attributes_of(const std::string& where, const Json& node) const {
    Attributes attributes;
    if (!node.contains("attributes")) return attributes;
    const Json& object = node.at("attributes");
    if (!object.is_object()) fail(where + ".attributes", "must be an object");
    for (const auto& [key, value] : object.items()) {
      if (value.is_number_integer()) {
        attributes[key] = value.get<int64_t>();
      } else if (value.is_number()) {
        attributes[key] = value.get<double>();
      } else if (value.is_array()) {
        std::vector<int64_t> list;
        for (const Json& each : value) {
          list.push_back(whole(where + ".attributes." + key, each, -kMostElements, kMostElements));
        }
        attributes[key] = std::move(list);
      } else {
        fail(where + ".attributes." + key, "must be a number or an array of whole numbers");
      }
    }
    return attributes;
  }

  ValueId value_named(const std::string& where, const std::map<std::string, ValueId>& known,
                      const std::string& name) const {
    const auto found = known.find(name);
    if (found != known.end()) return found->second;
    std::vector<std::string> names;
    for (const auto& [each, id] : known) names.push_back(each);
    fail(where, "there is no \"" + name + "\" above", did_you_mean(name, names));
  }

  /// Adds one item of "network".
  void add_item(const std::string& where, const Json& item, zoo::Net& net,
                std::map<std::string, ValueId>& known) const {
    const auto add = [&](const std::string& name, ValueId value) {
      if (!known.emplace(name, value).second) fail(where, "a second \"" + name + "\"");
    };
    if (!item.is_object()) fail(where, "must be an object");
    if (item.contains("input")) {
      check_keys(item, where, {"input", "shape", "samples", "values"});
      const Shape shape = shape_of(where, item);
      if (shape.empty()) fail(where + ".shape", "needs the samples of a batch first");
      const int64_t samples = item.contains("samples")
                                  ? whole(where + ".samples", item.at("samples"), 1, kMostElements)
                                  : shape[0];
      if (samples % shape[0] != 0) fail(where + ".samples", "must be a multiple of the batch");
      const int64_t count = element_count(shape) / shape[0] * samples;
      const std::string name = text(where, item, "input");
      add(name,
          net.in(shape, values(where + ".values", at(where, item, "values"), count, 0, net.draw),
                 name));
    } else if (item.contains("weight")) {
      check_keys(item, where, {"weight", "shape", "values"});
      const Shape shape = shape_of(where, item);
      const std::string name = text(where, item, "weight");
      add(name, net.variable(shape,
                             values(where + ".values", at(where, item, "values"),
                                    element_count(shape), side_of(shape), net.draw),
                             name));
    } else if (item.contains("constant")) {
      check_keys(item, where, {"constant", "shape", "values"});
      const Shape shape = item.contains("shape") ? shape_of(where, item) : Shape{};
      add(text(where, item, "constant"),
          net.constant(shape, values(where + ".values", at(where, item, "values"),
                                     element_count(shape), side_of(shape), net.draw)));
    } else if (item.contains("node")) {
      check_keys(item, where, {"node", "op", "inputs", "attributes"});
      std::vector<ValueId> inputs;
      const Json& list = at(where, item, "inputs");
      if (!list.is_array()) fail(where + ".inputs", "must be an array of names");
      for (const Json& each : list) {
        if (!each.is_string()) fail(where + ".inputs", "must contain names");
        inputs.push_back(value_named(where, known, each.get<std::string>()));
      }
      const std::string name = text(where, item, "node");
      try {
        add(name, net.op_at(name, text(where, item, "op"), inputs, attributes_of(where, item)));
      } catch (const Error& error) {
        if (std::string_view(error.what()).starts_with("level '")) throw;
        fail(where, error.what());
      }
    } else {
      fail(where, "needs \"input\", \"weight\", \"constant\" or \"node\"");
    }
  }

  /// Builds the network, its data and its settings.
  zoo::Setup make() const {
    const int64_t seed =
        root_.contains("seed") ? whole("seed", root_.at("seed"), 0, (1 << 15) - 1) : 1;
    zoo::Net net(static_cast<uint64_t>(seed));
    std::map<std::string, ValueId> known;
    const Json& network = at("", root_, "network");
    if (!network.is_array()) fail("network", "must be an array");
    for (size_t i = 0; i < network.size(); ++i) {
      add_item(fmt::format("network[{}]", i), network[i], net, known);
    }
    if (root_.contains("train") == root_.contains("result")) {
      fail("", "needs either \"result\" (a forward pass) or \"train\"");
    }
    if (root_.contains("result")) {
      return net.infer(value_named("result", known, text("", root_, "result")));
    }
    return trained(net, known);
  }

  zoo::Setup trained(zoo::Net& net, const std::map<std::string, ValueId>& known) const {
    const Json& train = root_.at("train");
    check_keys(train, "train",
               {"loss", "squares", "targets", "optimizer", "steps", "ranks", "micro_batches",
                "batch", "average", "shuffle"});
    const int64_t steps = whole("train.steps", at("train", train, "steps"), 1, kMostSteps);
    const std::string optimizer = text("train", train, "optimizer");
    zoo::Setup setup;
    if (train.contains("loss")) {
      const ValueId loss = value_named("train.loss", known, text("train", train, "loss"));
      std::vector<int64_t> axes(net.shape(loss).size());
      std::iota(axes.begin(), axes.end(), int64_t{0});
      const ValueId mean = axes.empty() ? loss
                                        : net.op_at("mean_loss", "ReduceMean", {loss},
                                                    {{"axes", axes}, {"keepdims", int64_t{0}}});
      setup = net.train_loss(mean, optimizer, steps);
    } else {
      const ValueId y = value_named("train.squares", known, text("train", train, "squares"));
      const int64_t each = element_count(net.shape(y)) / net.shape(y).at(0);
      setup = net.train_squares(
          y,
          values("train.targets", at("train", train, "targets"), each * net.samples(), 0, net.draw),
          optimizer, steps);
    }
    const auto count = [&](const char* key, int64_t most) {
      return train.contains(key) ? whole(std::string("train.") + key, train.at(key), 1, most) : 1;
    };
    setup.train.ranks = count("ranks", kMostRanks);
    setup.train.micro_batches = count("micro_batches", kMostRanks);
    setup.train.batch *= setup.train.ranks * setup.train.micro_batches;
    check_work(setup, steps * setup.train.ranks * setup.train.micro_batches);
    if (train.contains("average")) {
      setup.train.average = parse_weight_average(text("train", train, "average"));
    }
    if (train.contains("shuffle")) setup.train.shuffle = train.at("shuffle") == Json(true);
    return setup;
  }

  /// All answers are tried, so one run must not take long.
  void check_work(const zoo::Setup& setup, int64_t passes) const {
    int64_t elements = 0;
    for (const Value& each : setup.model.graph.values()) elements += element_count(each.shape);
    if (elements * passes > kMostWork) {
      fail("train", "is too much work for a puzzle",
           "take fewer steps, smaller shapes or fewer ranks");
    }
  }

  zoo::Case case_of(const Puzzle& puzzle) const {
    zoo::Case which;
    which.id = name_;
    which.what = puzzle.title;
    which.right = {puzzle.plan};
    const std::map<std::string, zoo::Measure> kMeasures{{"outputs", zoo::Measure::outputs},
                                                        {"loss", zoo::Measure::loss},
                                                        {"weights", zoo::Measure::weights},
                                                        {"averages", zoo::Measure::averages}};
    const std::string measure = text("", root_, "measure");
    const auto found = kMeasures.find(measure);
    if (found == kMeasures.end()) {
      fail("measure", "must be \"outputs\", \"loss\", \"weights\" or \"averages\"");
    }
    which.measure = found->second;
    if ((which.measure == zoo::Measure::outputs) == root_.contains("train")) {
      fail("measure", "\"outputs\" is for \"result\", the others are for \"train\"");
    }
    if (root_.contains("ok")) which.ok = number("ok", root_.at("ok"));
    if (root_.contains("harm")) which.harm = number("harm", root_.at("harm"));
    if (!(which.ok > 0.0 && which.ok <= which.harm))
      fail("ok", "must be positive, and at most harm");
    static_cast<void>(make());  // reports its mistakes now
    // The reader has checked everything, so the copy cannot fail.
    which.make = [reader = *this] { return reader.make(); };
    return which;
  }

  void check_paths(const Puzzle& puzzle) const {
    const zoo::Setup setup = puzzle.which.make();
    std::vector<std::string> nodes, weights;
    for (const Node& node : setup.model.graph.nodes()) nodes.push_back(node.path);
    for (const Variable& each : setup.model.graph.variables()) weights.push_back(each.path);
    const auto check = [&](const std::string& where, const std::string& path,
                           const std::vector<std::string>& known) {
      if (path.empty() || std::find(known.begin(), known.end(), path) != known.end()) return;
      fail(where, "the network has no \"" + path + "\"",
           did_you_mean(path, known,
                        known.empty() ? "it has none" : "there are: " + comma_list(known)));
    };
    check("number.weight", puzzle.number.weight, weights);
    for (size_t i = 0; i < puzzle.choices.size(); ++i) {
      for (const Change& change : puzzle.choices[i].edit.changes) {
        check(fmt::format("choices[{}].changes", i), change.path, nodes);
      }
    }
  }

  std::string name_;
  std::string text_;
  Json root_{};
};

}  // namespace

Puzzle read_puzzle(std::string_view json, const std::string& name) {
  return LevelReader(json, name).read();
}

}  // namespace halfscope::lab
