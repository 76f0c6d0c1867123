// SPDX-License-Identifier: MIT
#include "core/json_keys.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace halfscope {
namespace {

/// Keeps the keys of the objects that are open, and nothing else of the text.
class KeyReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::string twice;

  bool start_object(size_t) override {
    open_.emplace_back();
    return true;
  }
  bool key(std::string& name) override {
    if (open_.back().insert(name).second) return true;
    twice = name;
    return false;
  }
  bool end_object() override {
    open_.pop_back();
    return true;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

 private:
  std::vector<std::set<std::string>> open_;
};

}  // namespace

std::string repeated_key(std::string_view json) {
  KeyReader reader;
  nlohmann::json::sax_parse(json, &reader);
  return reader.twice;
}

}  // namespace halfscope
