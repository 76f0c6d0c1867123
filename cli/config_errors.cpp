// SPDX-License-Identifier: MIT
#include "cli/config_errors.h"

#include <algorithm>
#include <cctype>

#include "core/utf8.h"

namespace halfscope {
namespace {

constexpr size_t kLongest = 60;  // characters of a value in a message
constexpr const char* kCut = "...";

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Whether the words stand in the text, not as a part of others.
bool quotes(const std::string& text, const std::string& words) {
  if (words.empty()) return false;
  for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) {
    const size_t end = at + words.size();
    const bool begins = at == 0 || !in_word(text[at - 1]) || !in_word(words.front());
    const bool ends = end == text.size() || !in_word(text[end]) || !in_word(words.back());
    if (begins && ends) return true;
  }
  return false;
}

bool has_letter(const std::string& text) {
  return std::any_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isalpha(c) != 0; });
}

/// A value and, of "mnist:DIR" or "a.npz,test=b.npz", what may be files.
std::vector<std::string> pieces_of(const std::string& value, bool files_only) {
  std::vector<std::string> pieces;
  const auto is_file = [](const std::string& text) {
    return text.find_first_of("./") != std::string::npos && has_letter(text);
  };
  if (!files_only || is_file(value)) pieces.push_back(value);
  for (size_t start = 0; start < value.size();) {
    const size_t end = std::min(value.find_first_of(",=:", start), value.size());
    const std::string piece = value.substr(start, end - start);
    if (is_file(piece)) pieces.push_back(piece);
    start = end + 1;
  }
  return pieces;
}

/// Numbers are too many to tell anything, unless it is said what this one is, or the error is known
/// to be one of settings alone.
bool is_quoted(const ConfigKey& key, const Error& error, bool of_settings) {
  const std::string what = error.what(), flag = flag_of(key.key);
  const bool usage = error.kind() == ErrorKind::usage;
  if (usage && quotes(what, flag)) return true;
  const bool named = of_settings || quotes(what, flag.substr(2)) || quotes(error.hint(), flag);
  for (const std::string& value : key.words) {
    if (value == flag) continue;
    for (const std::string& piece : pieces_of(value, !usage)) {
      if ((has_letter(piece) || named) && quotes(what, piece)) return true;
    }
  }
  return false;
}

void collect(const Json& json, std::vector<std::string>& texts) {
  if (json.is_string()) texts.push_back(json.get<std::string>());
  if (!json.is_structured()) return;
  texts.push_back(json.dump(-1, ' ', false, Json::error_handler_t::replace));
  for (const auto& [key, value] : json.items()) {
    if (json.is_object()) texts.push_back(key);
    collect(value, texts);
  }
}

}  // namespace

std::string flag_of(const std::string& key) {
  std::string flag = "--" + key;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::vector<std::string> ConfigWords::merged(const ConfigKey* without) const {
  std::vector<std::string> words;
  for (const ConfigKey& key : keys) {
    if (key.used && &key != without) words.insert(words.end(), key.words.begin(), key.words.end());
  }
  words.insert(words.end(), given.begin(), given.end());
  return words;
}

std::vector<std::string> long_texts(const Json& json) {
  std::vector<std::string> texts;
  collect(json, texts);
  std::erase_if(texts, [](const std::string& text) { return text.size() <= kLongest; });
  std::sort(texts.begin(), texts.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() > b.size() : a < b;
  });
  return texts;
}

std::string shortened(std::string text, const std::vector<std::string>& texts) {
  for (const std::string& value : texts) {
    size_t kept = kLongest - std::string(kCut).size();
    while (kept > 0 && !begins_character(value[kept])) --kept;
    const std::string cut = value.substr(0, kept) + kCut;
    for (size_t at = text.find(value); at != std::string::npos; at = text.find(value, at)) {
      text.replace(at, value.size(), cut);
      at += cut.size();
    }
  }
  return text;
}

Error config_error(const ConfigWords& words, const std::vector<std::string>& keys,
                   const Error& error) {
  if (keys.empty()) return error;
  std::string names;
  for (const std::string& key : keys) names += (names.empty() ? "\"" : " and \"") + key + "\"";
  return Error(shortened(words.file + ": " + names + ": " + error.what(), words.texts),
               shortened(error.hint(), words.texts), error.kind());
}

Error explained(const ConfigWords& words, const Error& error, const ConfigCheck& check) {
  std::vector<std::string> cures;
  const bool of_settings = check(words.merged()) == error.what();
  if (of_settings) {
    for (const ConfigKey& key : words.keys) {
      if (key.used && !key.words.empty() && check(words.merged(&key)).empty()) {
        cures.push_back(key.key);
      }
    }
  }
  if (!cures.empty()) return config_error(words, cures, error);
  std::vector<std::string> quoted;
  for (const ConfigKey& key : words.keys) {
    if (key.used && is_quoted(key, error, of_settings)) quoted.push_back(key.key);
  }
  return config_error(words, quoted, error);
}

}  // namespace halfscope
