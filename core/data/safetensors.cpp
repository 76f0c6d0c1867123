// SPDX-License-Identifier: MIT
#include "core/data/safetensors.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <limits>
#include <new>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/data/file_bytes.h"
#include "core/data/header_text.h"
#include "core/data/npy.h"
#include "core/error.h"

namespace halfscope {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kPiece = uint64_t{1} << 18;  ///< values that are read at a time
constexpr const char* kWriteAgain = "write it again with safetensors' save_file";

uint64_t header_length(std::span<const uint8_t> bytes) noexcept {
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) length = length << 8 | bytes[i];
  return length;
}

void append_utf8(std::string& text, uint32_t point) {
  const auto put = [&](uint32_t byte) { text += static_cast<char>(byte); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xc0 | point >> 6);
    put(0x80 | (point & 0x3f));
  } else if (point < 0x10000) {
    put(0xe0 | point >> 12);
    put(0x80 | (point >> 6 & 0x3f));
    put(0x80 | (point & 0x3f));
  } else {
    put(0xf0 | point >> 18);
    put(0x80 | (point >> 12 & 0x3f));
    put(0x80 | (point >> 6 & 0x3f));
    put(0x80 | (point & 0x3f));
  }
}

/// Parses the header. The nesting is fixed, so there is no recursion that a file could deepen.
class SafetensorsParser : HeaderText {
 public:
  SafetensorsParser(std::string_view text, uint64_t data_begin, const std::string& file)
      : HeaderText(text, " \t\r\n", file + ": .safetensors header"),
        data_begin_(data_begin),
        file_(file) {}

  /// Returns the tensors with their number of bytes.
  std::vector<std::pair<StoredArray, uint64_t>> parse() {
    std::vector<std::pair<StoredArray, uint64_t>> arrays;
    std::set<std::string> names;
    members([&](std::string key) {
      if (!names.insert(key).second) fail("the name '" + visible_name(key) + "' occurs twice");
      if (key == "__metadata__") {
        members([&](const std::string&) { string(); });
      } else {
        arrays.push_back(tensor(std::move(key)));
      }
    });
    if (peek() != '\0' || at_ != text_.size()) fail("text after the closing brace");
    return arrays;
  }

 private:
  /// Calls value(key) at the value of each member of an object.
  template <class Value>
  void members(const Value& value) {
    expect('{');
    if (accept('}')) return;
    do {
      std::string key = string();
      expect(':');
      value(std::move(key));
    } while (accept(','));
    expect('}');
  }

  uint32_t hex4() {
    uint32_t value = 0;
    if (text_.size() - at_ < 4) fail("a \\u escape is cut off");
    const char* const end = text_.data() + at_ + 4;
    if (std::from_chars(text_.data() + at_, end, value, 16).ptr != end) fail("bad \\u escape");
    at_ += 4;
    return value;
  }

  uint32_t escaped_point() {
    const uint32_t first = hex4();
    if (first < 0xd800 || first >= 0xe000) return first;
    if (first >= 0xdc00 || text_.substr(at_, 2) != "\\u") fail("an unpaired surrogate in a name");
    at_ += 2;
    const uint32_t second = hex4();
    if (second < 0xdc00 || second >= 0xe000) fail("an unpaired surrogate in a name");
    return 0x10000 + ((first - 0xd800) << 10 | (second - 0xdc00));
  }

  std::string string() {
    expect('"');
    std::string result;
    while (true) {
      if (at_ == text_.size()) fail("a quote is not closed");
      const char c = text_[at_++];
      if (c == '"') return result;
      if (c != '\\') {
        result += c;
        continue;
      }
      if (at_ == text_.size()) fail("a quote is not closed");
      constexpr std::string_view kShort = "\"\\/bfnrt", kMeaning = "\"\\/\b\f\n\r\t";
      const char escape = text_[at_++];
      if (escape == 'u') {
        append_utf8(result, escaped_point());
      } else if (const size_t which = kShort.find(escape); which != std::string_view::npos) {
        result += kMeaning[which];
      } else {
        fail("unknown escape in a name");
      }
    }
  }

  /// Parses an array of whole numbers from 0 to 2^63 - 1.
  std::vector<int64_t> numbers(const std::string& what) {
    std::vector<int64_t> result;
    expect('[');
    if (accept(']')) return result;
    do {
      if (peek() < '0' || peek() > '9') fail(what + " is not a list of whole numbers from 0");
      int64_t number = 0;
      const auto [end, code] =
          std::from_chars(text_.data() + at_, text_.data() + text_.size(), number);
      if (code != std::errc()) fail(what + " has a number that does not fit in 64 bits");
      at_ = static_cast<size_t>(end - text_.data());
      if (peek() == '.' || peek() == 'e' || peek() == 'E') {
        fail(what + " is not a list of whole numbers from 0");
      }
      result.push_back(number);
    } while (accept(','));
    expect(']');
    return result;
  }

  std::pair<StoredArray, uint64_t> tensor(std::string name) {
    const std::string what = "tensor '" + visible_name(name) + "'";
    std::optional<StoredType> type;
    std::optional<Shape> shape;
    std::optional<std::vector<int64_t>> range;
    members([&](const std::string& key) {
      if (key == "dtype" && !type) {
        const std::string code = string();
        type = safetensors_type(code);
        if (type) return;
        throw usage_error(
            file_ + ": " + what + " has dtype '" + visible_name(code) + "', which is not supported",
            "save it as F64, F32, F16, BF16, F8_E4M3, F8_E5M2, an integer or BOOL");
      }
      if (key == "shape" && !shape) {
        shape = numbers("the shape of " + what);
      } else if (key == "data_offsets" && !range) {
        range = numbers("data_offsets of " + what);
      } else {
        fail("unknown or repeated key '" + visible_name(key) + "' of " + what);
      }
    });
    if (!type || !shape || !range) fail(what + " lacks dtype, shape or data_offsets");
    if (range->size() != 2 || (*range)[0] > (*range)[1]) {
      fail("data_offsets of " + what + " are not a begin and an end");
    }
    const auto begin = static_cast<uint64_t>((*range)[0]);
    const uint64_t bytes = static_cast<uint64_t>((*range)[1]) - begin;
    const std::optional<uint64_t> count = checked_count(*shape);
    if (!count || *count != bytes / stored_size(*type) || bytes % stored_size(*type) != 0) {
      fail(what + " has shape " + to_string(*shape) + " of " + stored_name(*type) + ", but " +
           std::to_string(bytes) + " bytes");
    }
    return {{.name = std::move(name),
             .type = *type,
             .shape = std::move(*shape),
             .count = *count,
             .offset = data_begin_ + begin},
            bytes};
  }

  uint64_t data_begin_;
  const std::string& file_;
};

/// Converts every tensor of a file; `Tensors` is NamedTensors or NamedDoubleTensors.
template <class Tensors>
Tensors read_all(const std::filesystem::path& file) {
  const FileBytes bytes(file);
  FileSource source(bytes);
  Tensors tensors;
  std::vector<uint8_t> raw;
  for (const StoredArray& array : safetensors_arrays(source, file.string())) {
    typename Tensors::mapped_type tensor{array.shape, {}};
    try {
      tensor.data.resize(array.count);
    } catch (const std::bad_alloc&) {
      throw Error(file.string() + ": not enough memory for tensor '" + visible_name(array.name) +
                  "'");
    }
    const size_t size = stored_size(array.type);
    for (uint64_t done = 0; done < array.count; done += kPiece) {
      raw.resize(std::min(kPiece, array.count - done) * size);
      bytes.read(array.offset + done * size, raw);
      decode_values(raw, array.type, false, tensor.data.data() + done);
    }
    tensors.emplace(array.name, std::move(tensor));
  }
  return tensors;
}

}  // namespace

std::vector<StoredArray> safetensors_arrays(ByteSource& file, const std::string& name) {
  if (file.size() < kLengthBytes) {
    throw usage_error(
        name + ": not a .safetensors file (" + std::to_string(file.size()) + " bytes)",
        kWriteAgain);
  }
  std::array<uint8_t, kLengthBytes> first{};
  file.read(first);
  const uint64_t length = header_length(first);
  if (length > kMaxSafetensorsHeader) {
    throw Error(name + ": the .safetensors header has " + std::to_string(length) +
                    " bytes, expected at most " + std::to_string(kMaxSafetensorsHeader),
                kDamagedFileHint);
  }
  if (length > file.size() - kLengthBytes) {
    throw Error(name + ": truncated: the .safetensors header has " + std::to_string(length) +
                    " bytes, the file " + std::to_string(file.size()),
                kDamagedFileHint);
  }
  std::vector<uint8_t> header(length);
  file.read(header);
  const uint64_t begin = kLengthBytes + length;
  auto found =
      SafetensorsParser({reinterpret_cast<const char*>(header.data()), header.size()}, begin, name)
          .parse();
  // Empty tensors begin where another one does.
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.offset, a.second) < std::pair(b.first.offset, b.second);
  });
  std::vector<StoredArray> arrays;
  uint64_t end = begin;
  for (auto& [array, bytes] : found) {
    const std::string what = name + ": tensor '" + visible_name(array.name) + "'";
    if (array.offset != end) {
      throw Error(what + (array.offset < end ? " overlaps the one before it"
                                             : " begins after a gap in the data"),
                  kDamagedFileHint);
    }
    if (bytes > file.size() - end) {
      throw Error(what + " ends at byte " + std::to_string(end + bytes) + ", beyond the file's " +
                      std::to_string(file.size()),
                  kDamagedFileHint);
    }
    end += bytes;
    arrays.push_back(std::move(array));
  }
  if (end != file.size()) {
    throw Error(name + ": " + std::to_string(file.size() - end) +
                    " bytes after the last tensor belong to none",
                kDamagedFileHint);
  }
  return arrays;
}

NamedTensors read_safetensors(const std::filesystem::path& file) {
  return read_all<NamedTensors>(file);
}

NamedDoubleTensors read_safetensors_double(const std::filesystem::path& file) {
  return read_all<NamedDoubleTensors>(file);
}

bool is_safetensors(const std::filesystem::path& file) {
  if (file.extension() == ".safetensors") return true;
  std::error_code code;
  const uint64_t size = std::filesystem::file_size(file, code);
  if (code || size < kLengthBytes + 2) return false;
  std::ifstream stream(file, std::ios::binary);
  std::array<char, kLengthBytes + 1> bytes{};
  if (!stream.read(bytes.data(), bytes.size()) || bytes.back() != '{') return false;
  const std::span<const uint8_t> raw(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  return header_length(raw) <= size - kLengthBytes;
}

}  // namespace halfscope
