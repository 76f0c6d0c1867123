// SPDX-License-Identifier: MIT
// .npy parsing (numpy.lib.format, versions 1.0 to 3.0) and conversion of every plain number type to
// float32. The header parser accepts only the subset of Python that the format allows.
#include "core/data/npy.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <fstream>
#include <new>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/data/header_text.h"
#include "core/data/npz.h"
#include "core/data/read_failure.h"
#include "core/error.h"

namespace halfscope {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr uint64_t kPreamble = 8;  // magic and two version bytes
constexpr uint64_t kMaxHeader = uint64_t{1} << 20;
constexpr const char* kOtherType =
    "save it as numbers: numpy.save(file, array.astype(numpy.float32))";

/// A scalar type of NumPy, such as "<f4".
struct ScalarType {
  StoredType type = StoredType::f32;
  bool big_endian = false;
};

struct Header {
  ScalarType type;
  bool fortran_order = false;
  Shape shape;
};

ScalarType parse_descr(std::string_view descr, const std::string& name) {
  ScalarType type;
  std::string_view rest = descr;
  if (!rest.empty() && std::string_view("<>=|").find(rest[0]) != std::string_view::npos) {
    const bool native_big = std::endian::native == std::endian::big;
    type.big_endian = rest[0] == '>' || (rest[0] == '=' && native_big);
    rest.remove_prefix(1);
  }
  constexpr std::pair<std::string_view, StoredType> kKnown[] = {
      {"f2", StoredType::f16}, {"f4", StoredType::f32}, {"f8", StoredType::f64},
      {"i1", StoredType::i8},  {"i2", StoredType::i16}, {"i4", StoredType::i32},
      {"i8", StoredType::i64}, {"u1", StoredType::u8},  {"u2", StoredType::u16},
      {"u4", StoredType::u32}, {"u8", StoredType::u64}, {"b1", StoredType::boolean}};
  for (const auto& [code, known] : kKnown) {
    if (code != rest) continue;
    type.type = known;
    return type;
  }
  throw usage_error(name + ": values have type '" + visible_name(descr) +
                        "', expected a float of 2, 4 or 8 bytes, an integer or bool",
                    kOtherType);
}

/// Parses a dict literal such as {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
class HeaderParser : HeaderText {
 public:
  HeaderParser(std::string_view text, const std::string& name)
      : HeaderText(text, " \t\n", name + ": .npy header"), name_(name) {}

  Header parse() {
    std::optional<ScalarType> type;
    std::optional<bool> fortran_order;
    std::optional<Shape> shape;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr" && !type) {
        if (peek() == '[' || peek() == '(') {
          throw usage_error(name_ + ": values are structured records, expected plain numbers",
                            kOtherType);
        }
        type = parse_descr(quoted(), name_);
      } else if (key == "fortran_order" && !fortran_order) {
        fortran_order = boolean();
      } else if (key == "shape" && !shape) {
        shape = tuple();
      } else {
        fail("unknown or repeated key '" + std::string(key) + "'");
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    if (peek() != '\0') fail("text after the closing brace");
    if (!type || !fortran_order || !shape) fail("descr, fortran_order or shape is missing");
    return {*type, *fortran_order, *shape};
  }

 private:
  std::string_view quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail("quoted text expected");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail("a quote is not closed");
    const std::string_view text = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return text;
  }

  bool boolean() {
    peek();
    for (const std::string_view word : {"True", "False"}) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return word == "True";
      }
    }
    fail("fortran_order is neither True nor False");
  }

  Shape tuple() {
    Shape shape;
    expect('(');
    while (!accept(')')) {
      if (peek() < '0' || peek() > '9') fail("shape is not a tuple of sizes");
      int64_t size = 0;
      const char* const begin = text_.data() + at_;
      const auto [end, code] = std::from_chars(begin, text_.data() + text_.size(), size);
      if (code != std::errc()) fail("a size in shape does not fit in 64 bits");
      at_ += static_cast<size_t>(end - begin);
      accept('L');  // Python 2 wrote long integers like this
      shape.push_back(size);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return shape;
  }

  const std::string& name_;
};

/// Reorders values from column-major (first dimension fastest) to row-major.
template <class T>
std::vector<T> to_row_major(const std::vector<T>& source, const Shape& shape) {
  std::vector<T> result;
  result.reserve(source.size());
  std::vector<int64_t> index(shape.size(), 0);
  for (size_t i = 0; i < source.size(); ++i) {
    int64_t offset = 0;
    for (size_t d = shape.size(); d-- > 0;) offset = offset * shape[d] + index[d];
    result.push_back(source[static_cast<size_t>(offset)]);
    for (size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
  return result;
}

/// Reads an array; `Result` is Tensor or DoubleTensor.
template <class Result>
Result read_array(ByteSource& source, const std::string& name) {
  const StoredArray array = read_npy_header(source, name);
  decltype(Result::data) values;
  try {
    values.resize(array.count);
  } catch (const std::bad_alloc&) {
    throw Error(name + ": not enough memory for its " + std::to_string(array.count) + " values");
  }
  std::vector<uint8_t> chunk(size_t{1} << 16);  // a multiple of every value size
  const size_t size = stored_size(array.type);
  for (size_t at = 0; at < values.size();) {
    const size_t number = std::min(chunk.size() / size, values.size() - at);
    const std::span<uint8_t> raw = std::span(chunk).first(number * size);
    source.read(raw);
    decode_values(raw, array.type, array.big_endian, values.data() + at);
    at += number;
  }
  if (array.fortran_order && array.shape.size() > 1) values = to_row_major(values, array.shape);
  return {array.shape, std::move(values)};
}

}  // namespace

std::vector<uint8_t> read_file(const std::filesystem::path& file) {
  namespace fs = std::filesystem;
  const char* const kCheck = "check the path and its permissions";
  std::error_code code;
  const uint64_t size = fs::file_size(file, code);  // fails for folders, too
  if (code) throw Error("cannot read '" + file.string() + "': " + read_failure(code), kCheck);
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw Error("cannot open '" + file.string() + "'", kCheck);
  std::vector<uint8_t> bytes(size);
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (!stream) throw Error("cannot read all of '" + file.string() + "'", kCheck);
  return bytes;
}

StoredArray read_npy_header(ByteSource& source, const std::string& name) {
  uint64_t left = source.size();
  const auto take = [&](uint64_t count) {
    if (count > left) {
      throw Error(name + ": truncated: the .npy header needs " + std::to_string(count - left) +
                      " bytes more than the " + std::to_string(source.size()) + " in the file",
                  kDamagedFileHint);
    }
    std::vector<uint8_t> bytes(count);
    source.read(bytes);
    left -= count;
    return bytes;
  };

  const std::vector<uint8_t> preamble = take(kPreamble);
  if (std::memcmp(preamble.data(), kMagic.data(), kMagic.size()) != 0) {
    throw usage_error(name + ": not a .npy array: it does not begin with \\x93NUMPY",
                      "write it with numpy.save or numpy.savez");
  }
  const int version = preamble[6];
  if (version < 1 || version > 3 || preamble[7] != 0) {
    throw usage_error(name + ": unsupported .npy version " + std::to_string(version) + "." +
                          std::to_string(preamble[7]) + ", expected 1.0, 2.0 or 3.0",
                      kDamagedFileHint);
  }
  uint64_t header_size = 0;
  const std::vector<uint8_t> length = take(version == 1 ? 2 : 4);
  for (size_t i = length.size(); i-- > 0;) header_size = header_size << 8 | length[i];
  if (header_size > kMaxHeader) {
    throw Error(name + ": the .npy header has " + std::to_string(header_size) +
                    " bytes, expected at most " + std::to_string(kMaxHeader),
                kDamagedFileHint);
  }
  const std::vector<uint8_t> text = take(header_size);
  Header header =
      HeaderParser({reinterpret_cast<const char*>(text.data()), text.size()}, name).parse();

  const size_t size = stored_size(header.type.type);
  const std::optional<uint64_t> count = checked_count(header.shape);
  if (!count || *count > left / size || *count * size != left) {
    throw Error(name + ": shape " + to_string(header.shape) + " with " + std::to_string(size) +
                    " bytes per value does not match the " + std::to_string(left) +
                    " bytes of data",
                kDamagedFileHint);
  }
  return {.name = name,
          .type = header.type.type,
          .big_endian = header.type.big_endian,
          .fortran_order = header.fortran_order,
          .shape = std::move(header.shape),
          .count = *count,
          .offset = source.size() - left};
}

Tensor read_npy_array(ByteSource& source, const std::string& name) {
  return read_array<Tensor>(source, name);
}

DoubleTensor read_npy_double_array(ByteSource& source, const std::string& name) {
  return read_array<DoubleTensor>(source, name);
}

std::vector<uint8_t> npy_header(const Shape& shape, const char* type) {
  std::string text = std::string("{'descr': '") + type + "', 'fortran_order': False, 'shape': (";
  for (int64_t size : shape) text += std::to_string(size) + (shape.size() == 1 ? "," : ", ");
  if (shape.size() > 1) text.resize(text.size() - 2);
  text += "), }";
  constexpr size_t kAlignment = 64;
  const size_t fixed = kPreamble + 2 + text.size() + 1;
  text.append((kAlignment - fixed % kAlignment) % kAlignment, ' ');
  text += '\n';
  if (text.size() > 0xFFFF) {
    throw Error("a shape of " + std::to_string(shape.size()) +
                " dimensions does not fit in a .npy header");
  }
  std::string header(kMagic);
  header += '\1';
  header += '\0';
  header += static_cast<char>(text.size() & 0xFF);
  header += static_cast<char>(text.size() >> 8);
  header += text;
  return {header.begin(), header.end()};
}

void MemorySource::read(std::span<uint8_t> target) {
  std::copy_n(rest_.begin(), target.size(), target.begin());
  rest_ = rest_.subspan(target.size());
}

Tensor read_npy(const std::filesystem::path& file) {
  const std::vector<uint8_t> bytes = read_file(file);
  MemorySource source(bytes);
  return read_npy_array(source, file.string());
}

DoubleTensor read_npy_double(const std::filesystem::path& file) {
  const std::vector<uint8_t> bytes = read_file(file);
  MemorySource source(bytes);
  return read_npy_double_array(source, file.string());
}

}  // namespace halfscope
