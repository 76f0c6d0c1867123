// SPDX-License-Identifier: MIT
#include "core/onnx/tensor_proto.h"

#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <span>

#include "core/error.h"
#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/float_format.h"
#include "core/onnx/node_order.h"

namespace halfscope::onnx_files {
namespace {

static_assert(std::endian::native == std::endian::little, "raw data is little-endian");

struct TypeRow {
  DataType type;
  const char* name;
  int bits;  ///< of an element in raw data
  bool real, integer;
};
constexpr std::array<TypeRow, 23> kTypes{{
    {DataType::undefined, "undefined", 0, false, false},
    {DataType::float32, "float32", 32, true, false},
    {DataType::uint8, "uint8", 8, false, true},
    {DataType::int8, "int8", 8, false, true},
    {DataType::uint16, "uint16", 16, false, true},
    {DataType::int16, "int16", 16, false, true},
    {DataType::int32, "int32", 32, false, true},
    {DataType::int64, "int64", 64, false, true},
    {DataType::string, "string", 0, false, false},
    {DataType::boolean, "bool", 8, false, true},
    {DataType::float16, "float16", 16, true, false},
    {DataType::float64, "float64", 64, true, false},
    {DataType::uint32, "uint32", 32, false, true},
    {DataType::uint64, "uint64", 64, false, true},
    {DataType::complex64, "complex64", 64, false, false},
    {DataType::complex128, "complex128", 128, false, false},
    {DataType::bfloat16, "bfloat16", 16, true, false},
    {DataType::float8e4m3fn, "float8e4m3fn", 8, true, false},
    {DataType::float8e4m3fnuz, "float8e4m3fnuz", 8, true, false},
    {DataType::float8e5m2, "float8e5m2", 8, true, false},
    {DataType::float8e5m2fnuz, "float8e5m2fnuz", 8, true, false},
    {DataType::uint4, "uint4", 4, false, true},
    {DataType::int4, "int4", 4, false, true},
}};

const TypeRow* find_type(DataType type) noexcept {
  const auto number = static_cast<int32_t>(type);
  if (number < 0 || number >= static_cast<int32_t>(kTypes.size())) return nullptr;
  return &kTypes[static_cast<size_t>(number)];
}

template <class S>
S load(const uint8_t* bytes) noexcept {
  S value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

/// Bytes to elements, whose number has been checked.
void decode_bytes(std::span<const uint8_t> bytes, KnownTensor& tensor) {
  const auto reals = [&]<class S>(S, const auto& convert) {
    tensor.reals.resize(bytes.size() / sizeof(S));
    for (size_t i = 0; i < tensor.reals.size(); ++i) {
      tensor.reals[i] = static_cast<float>(convert(load<S>(bytes.data() + i * sizeof(S))));
    }
  };
  const auto ints = [&]<class S>(S) {
    tensor.ints.resize(bytes.size() / sizeof(S));
    for (size_t i = 0; i < tensor.ints.size(); ++i) {
      tensor.ints[i] = static_cast<int64_t>(load<S>(bytes.data() + i * sizeof(S)));
    }
  };
  const auto plain = [](auto value) { return value; };
  const auto coded = [](const FloatFormat& format) {
    return [format](auto code) { return halfscope::decode(static_cast<uint32_t>(code), format); };
  };
  if (const std::optional<FloatFormat> format = format_of(tensor.type);
      format && *format != kFp32) {
    return format->bits() == 16 ? reals(uint16_t{}, coded(*format))
                                : reals(uint8_t{}, coded(*format));
  }
  switch (tensor.type) {
    case DataType::float32:
      reals(float{}, plain);
      break;
    case DataType::float64:
      reals(double{}, plain);
      break;
    case DataType::uint8:
      ints(uint8_t{});
      break;
    case DataType::int8:
      ints(int8_t{});
      break;
    case DataType::uint16:
      ints(uint16_t{});
      break;
    case DataType::int16:
      ints(int16_t{});
      break;
    case DataType::int32:
      ints(int32_t{});
      break;
    case DataType::int64:
      ints(int64_t{});
      break;
    case DataType::uint32:
      ints(uint32_t{});
      break;
    case DataType::uint64:
      ints(uint64_t{});
      break;
    case DataType::boolean:
      ints(uint8_t{});
      for (int64_t& value : tensor.ints) value = value != 0;
      break;
    case DataType::uint4:
    case DataType::int4: {  // two in a byte, the first in the low half
      const int64_t count = tensor.count();
      for (int64_t i = 0; i < count; ++i) {
        const int half = bytes[static_cast<size_t>(i / 2)] >> (i % 2 * 4) & 15;
        tensor.ints.push_back(tensor.type == DataType::int4 && half > 7 ? half - 16 : half);
      }
      break;
    }
    default:
      break;
  }
}

/// External data in a file: `length` bytes from `offset`, or as many as the shape needs.
struct ExternalData {
  std::string location;
  uint64_t offset = 0;
  std::optional<uint64_t> length;
};

ExternalData external_data(const ::onnx::TensorProto& proto, const std::string& what) {
  ExternalData data;
  for (const ::onnx::StringStringEntryProto& entry : proto.external_data()) {
    const auto number = [&] {
      size_t used = 0;
      uint64_t value = 0;
      try {
        if (!entry.value().empty() && entry.value()[0] != '-')
          value = std::stoull(entry.value(), &used);
      } catch (const std::exception&) {
      }
      if (used == 0 || used != entry.value().size())
        throw Error(what + ": " + entry.key() + " of its external data is not a number");
      return value;
    };
    if (entry.key() == "location") data.location = entry.value();
    if (entry.key() == "offset") data.offset = number();
    if (entry.key() == "length") data.length = number();
  }
  return data;
}

/// Returns the path of an external file. It may not leave the folder.
std::filesystem::path external_path(const std::string& location,
                                    const std::filesystem::path& folder, const std::string& what) {
  const std::filesystem::path relative(location);
  bool leaves = location.empty() || relative.is_absolute() || relative.has_root_path() ||
                location.find('\\') != location.npos || location.find('\0') != location.npos;
  for (const std::filesystem::path& part : relative) leaves = leaves || part == "..";
  std::error_code failed;
  const std::filesystem::path base =
      std::filesystem::canonical(folder.empty() ? std::filesystem::path(".") : folder, failed);
  if (!leaves && !failed) {
    // Links inside the folder must not lead out of it either.
    const std::filesystem::path target = std::filesystem::canonical(base / relative, failed);
    if (!failed) {
      const auto end = std::mismatch(base.begin(), base.end(), target.begin(), target.end());
      leaves = end.first != base.end();
    }
  }
  if (leaves) {
    throw Error(what + ": its external data file '" + printable(location) +
                    "' is outside the folder of the model",
                "put the data file into the folder of the model, and refer to it by its name");
  }
  if (failed || !std::filesystem::is_regular_file(base / relative, failed)) {
    throw Error(what + ": cannot read its external data file '" + printable(location) + "'",
                "put the data file into the folder of the model");
  }
  return base / relative;
}

std::vector<uint8_t> external_bytes(const ::onnx::TensorProto& proto,
                                    const std::filesystem::path& folder, uint64_t wanted,
                                    const std::string& what) {
  const ExternalData data = external_data(proto, what);
  const std::filesystem::path file = external_path(data.location, folder, what);
  const std::string shown = printable(data.location);
  std::error_code failed;
  const uint64_t size = std::filesystem::file_size(file, failed);
  if (failed || data.offset > size || wanted > size - data.offset ||
      data.length.value_or(wanted) != wanted) {
    throw Error(what + ": its external data file '" + shown + "' does not contain " +
                std::to_string(wanted) + " bytes at offset " + std::to_string(data.offset));
  }
  std::ifstream in(file, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(data.offset));
  std::vector<uint8_t> bytes(wanted);
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(wanted));
  if (!in) throw Error(what + ": cannot read its external data file '" + shown + "'");
  return bytes;
}

/// Decodes the typed fields. 16-bit floats and small integers are in int32_data, one per entry.
void decode_fields(const ::onnx::TensorProto& proto, const TypeRow& row, KnownTensor& tensor,
                   const std::string& what) {
  const int64_t count = tensor.count();
  const auto check = [&](int64_t there) {
    if (there != count) {
      throw Error(what + ": it has " + std::to_string(there) +
                  " elements, which do not fit its shape " + to_string(tensor.shape));
    }
  };
  if (tensor.type == DataType::float32) {
    check(proto.float_data_size());
    tensor.reals.assign(proto.float_data().begin(), proto.float_data().end());
  } else if (tensor.type == DataType::float64) {
    check(proto.double_data_size());
    for (double value : proto.double_data()) tensor.reals.push_back(static_cast<float>(value));
  } else if (tensor.type == DataType::int64) {
    check(proto.int64_data_size());
    tensor.ints.assign(proto.int64_data().begin(), proto.int64_data().end());
  } else if (tensor.type == DataType::uint64 || tensor.type == DataType::uint32) {
    check(proto.uint64_data_size());
    for (uint64_t value : proto.uint64_data()) tensor.ints.push_back(static_cast<int64_t>(value));
  } else if (row.bits == 4) {
    std::vector<uint8_t> bytes;
    for (int32_t value : proto.int32_data()) bytes.push_back(static_cast<uint8_t>(value));
    if (static_cast<int64_t>(bytes.size()) != (count + 1) / 2) check(proto.int32_data_size() * 2);
    decode_bytes(bytes, tensor);
  } else {
    check(proto.int32_data_size());
    std::vector<uint8_t> bytes;
    bytes.reserve(static_cast<size_t>(count * row.bits / 8));
    for (int32_t value : proto.int32_data()) {
      for (int at = 0; at < row.bits; at += 8)
        bytes.push_back(static_cast<uint8_t>(static_cast<uint32_t>(value) >> at));
    }
    decode_bytes(bytes, tensor);
  }
}

}  // namespace

std::optional<FloatFormat> format_of(DataType type) {
  for (const NamedFormat& each : named_formats()) {
    if (each.onnx_type != 0 && each.onnx_type == static_cast<int>(type)) return each.format;
  }
  return std::nullopt;
}

std::optional<DataType> type_of(const FloatFormat& format) {
  FloatFormat plain = format;
  plain.saturate = false;
  for (const NamedFormat& each : named_formats()) {
    if (each.onnx_type != 0 && each.format == plain) return DataType{each.onnx_type};
  }
  return std::nullopt;
}

std::string type_name(DataType type) {
  const TypeRow* row = find_type(type);
  return row != nullptr ? row->name : "type " + std::to_string(static_cast<int32_t>(type));
}

bool is_real(DataType type) noexcept {
  const TypeRow* row = find_type(type);
  return row != nullptr && row->real;
}

bool is_integer(DataType type) noexcept {
  const TypeRow* row = find_type(type);
  return row != nullptr && row->integer;
}

int64_t all_bits(DataType type, const std::string& what) {
  switch (type) {
    case DataType::uint4:
      return 15;
    case DataType::uint8:
      return UINT8_MAX;
    case DataType::uint16:
      return UINT16_MAX;
    case DataType::uint32:
      return UINT32_MAX;
    default:
      break;
  }
  if (!is_integer(type) || type == DataType::boolean)
    throw Error(what + ": an input of type " + type_name(type) + " is not supported");
  return -1;
}

int64_t checked_count(const Shape& shape, const std::string& what, int64_t most) {
  int64_t count = 1;
  bool empty = false;
  for (int64_t dimension : shape) {
    if (dimension < 0) throw Error(what + ": shape " + to_string(shape) + " has a negative size");
    empty = empty || dimension == 0;
    if (dimension == 0) continue;
    if (dimension > most || count > most / dimension) {
      throw Error(what + ": shape " + to_string(shape) + " has more than " + std::to_string(most) +
                  " elements");
    }
    count *= dimension;
  }
  return empty ? 0 : count;
}

KnownTensor known_ints(std::vector<int64_t> values, Shape shape, DataType type) {
  return {.type = type, .shape = std::move(shape), .reals = {}, .ints = std::move(values)};
}

KnownTensor known_list(std::vector<int64_t> values) {
  const auto count = static_cast<int64_t>(values.size());
  return known_ints(std::move(values), {count});
}

KnownTensor read_tensor(const ::onnx::TensorProto& proto, const std::filesystem::path& folder,
                        const std::string& what) {
  KnownTensor tensor;
  tensor.type = static_cast<DataType>(proto.data_type());
  tensor.shape.assign(proto.dims().begin(), proto.dims().end());
  const TypeRow* row = find_type(tensor.type);
  if (row == nullptr || row->bits == 0 || !(row->real || row->integer)) {
    throw Error(what + ": tensors of " + type_name(tensor.type) + " are not supported");
  }
  if (proto.has_segment()) throw Error(what + ": tensors stored in segments are not supported");
  const int64_t count = checked_count(tensor.shape, what);
  const auto bytes_wanted = static_cast<uint64_t>((count * row->bits + 7) / 8);
  if (proto.data_location() == ::onnx::TensorProto::EXTERNAL) {
    decode_bytes(external_bytes(proto, folder, bytes_wanted, what), tensor);
  } else if (proto.has_raw_data()) {
    const std::string& raw = proto.raw_data();
    if (raw.size() != bytes_wanted) {
      throw Error(what + ": it has " + std::to_string(raw.size()) + " bytes, but shape " +
                  to_string(tensor.shape) + " of " + row->name + " needs " +
                  std::to_string(bytes_wanted));
    }
    decode_bytes({reinterpret_cast<const uint8_t*>(raw.data()), raw.size()}, tensor);
  } else {
    decode_fields(proto, *row, tensor, what);
  }
  return tensor;
}

std::optional<std::filesystem::path> external_file(const ::onnx::TensorProto& proto,
                                                   const std::filesystem::path& folder,
                                                   const std::string& what) {
  if (proto.data_location() != ::onnx::TensorProto::EXTERNAL) return std::nullopt;
  return external_path(external_data(proto, what).location, folder, what);
}

void write_tensor(const KnownTensor& tensor, const std::string& name, ::onnx::TensorProto& proto) {
  proto.set_name(name);
  proto.set_data_type(static_cast<int32_t>(tensor.type));
  for (int64_t dimension : tensor.shape) proto.add_dims(dimension);
  std::string& raw = *proto.mutable_raw_data();
  const auto put = [&raw](const auto& value) {
    raw.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const auto codes = [&](const FloatFormat& format, auto code) {
    for (float value : tensor.reals)
      put(static_cast<decltype(code)>(halfscope::encode(value, format)));
  };
  if (const std::optional<FloatFormat> format = format_of(tensor.type);
      format && *format != kFp32) {
    return format->bits() == 16 ? codes(*format, uint16_t{}) : codes(*format, uint8_t{});
  }
  switch (tensor.type) {
    case DataType::float32:
      for (float value : tensor.reals) put(value);
      break;
    case DataType::int64:
      for (int64_t value : tensor.ints) put(value);
      break;
    case DataType::int32:
      for (int64_t value : tensor.ints) put(static_cast<int32_t>(value));
      break;
    case DataType::int8:
      for (int64_t value : tensor.ints) put(static_cast<int8_t>(value));
      break;
    case DataType::int4:  // two in a byte, the first in its low half
      for (size_t i = 0; i < tensor.ints.size(); i += 2) {
        const int64_t next = i + 1 < tensor.ints.size() ? tensor.ints[i + 1] : 0;
        put(static_cast<uint8_t>((tensor.ints[i] & 15) | (next & 15) << 4));
      }
      break;
    case DataType::boolean:
      for (int64_t value : tensor.ints) put(static_cast<uint8_t>(value != 0));
      break;
    default:
      throw Error(name + ": tensors of " + type_name(tensor.type) + " cannot be written");
  }
}

}  // namespace halfscope::onnx_files
