// SPDX-License-Identifier: MIT
#include "core/data/tensor_file.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <set>
#include <string_view>
#include <utility>

#include "core/data/npz.h"
#include "core/data/safetensors.h"
#include "core/error.h"

namespace halfscope {

std::optional<TensorFileKind> tensor_file_kind(const std::filesystem::path& file) {
  std::array<char, 6> start{};
  std::ifstream stream(file, std::ios::binary);
  stream.read(start.data(), start.size());
  const std::string_view begin(start.data(), static_cast<size_t>(stream.gcount()));
  if (begin == "\x93NUMPY") return TensorFileKind::npy;
  if (begin.starts_with("PK")) return TensorFileKind::npz;
  if (is_safetensors(file)) return TensorFileKind::safetensors;
  if (file.extension() == ".npy") return TensorFileKind::npy;
  if (file.extension() == ".npz") return TensorFileKind::npz;
  return std::nullopt;
}

bool is_torch_name(const std::filesystem::path& file) {
  constexpr std::string_view kEndings[] = {".pt", ".pth", ".ckpt", ".bin"};
  const std::string ending = file.extension().string();
  return std::find(std::begin(kEndings), std::end(kEndings), ending) != std::end(kEndings);
}

void refuse_torch_file(const std::filesystem::path& file) {
  if (!is_torch_name(file)) return;
  const std::string name = file.string(), stem = file.stem().string();
  throw usage_error("'" + name + "' is a PyTorch file, which HalfScope does not read",
                    "in Python: safetensors.torch.save_file(torch.load('" + name +
                        "', weights_only=True), '" + stem +
                        ".safetensors'); of a whole checkpoint, save its state dict");
}

NamedTensors read_tensors(const std::filesystem::path& file) {
  refuse_torch_file(file);
  return is_safetensors(file) ? read_safetensors(file) : read_npz(file);
}

NamedDoubleTensors read_tensors_double(const std::filesystem::path& file) {
  refuse_torch_file(file);
  return is_safetensors(file) ? read_safetensors_double(file) : read_npz_double(file);
}

TensorFile::TensorFile(const std::filesystem::path& file) : file_(file) {
  refuse_torch_file(file);
  const std::string name = file.string();
  const TensorFileKind kind = tensor_file_kind(file).value_or(TensorFileKind::npy);
  FileSource source(file_);
  if (kind == TensorFileKind::safetensors) {
    arrays_ = safetensors_arrays(source, name);
    return;
  }
  if (kind == TensorFileKind::npy) {
    arrays_.push_back(read_npy_header(source, name));
    arrays_[0].name = file.stem().string();
    return;
  }
  archive_ = std::make_unique<ZipReader>(file);
  constexpr std::string_view kSuffix = ".npy";
  std::set<std::string> keys;
  for (const ZipMember& member : archive_->members()) {
    const std::string what = archive_->describe(member);
    if (!member.name.ends_with(kSuffix)) {
      throw usage_error(what + " is not a .npy array", "use a .npz file that numpy.savez wrote");
    }
    StoredArray array = read_npy_header(*archive_->open(member), what);
    array.name = member.name.substr(0, member.name.size() - kSuffix.size());
    array.member = arrays_.size();
    if (!keys.insert(array.name).second) {
      throw Error(what + " occurs twice", "save the file again with one array per name");
    }
    arrays_.push_back(std::move(array));
  }
}

std::unique_ptr<ByteSource> TensorFile::open(const StoredArray& array) const {
  const ZipMember& member = archive_->members()[array.member];
  std::unique_ptr<ByteSource> source = archive_->open(member);
  read_npy_header(*source, archive_->describe(member));
  return source;
}

}  // namespace halfscope
