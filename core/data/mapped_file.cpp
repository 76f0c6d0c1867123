// SPDX-License-Identifier: MIT
#include "core/data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "core/data/read_failure.h"
#include "core/error.h"

namespace halfscope {

MappedFile::MappedFile(const std::filesystem::path& file) {
  const auto problem = [&](int code) {
    return Error("cannot read '" + file.string() +
                     "': " + read_failure(std::error_code(code, std::generic_category())),
                 "check the path and its permissions");
  };
  const int descriptor = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) throw problem(errno);
  struct stat status {};
  int code = fstat(descriptor, &status) == 0 ? 0 : errno;
  if (code == 0 && S_ISDIR(status.st_mode)) code = EISDIR;
  if (code == 0 && !S_ISREG(status.st_mode)) code = EINVAL;
  if (code == 0 && status.st_size > 0) {
    size_ = static_cast<size_t>(status.st_size);
    void* const mapped = mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor, 0);
    if (mapped == MAP_FAILED) {
      code = errno;
    } else {
      data_ = static_cast<const uint8_t*>(mapped);
    }
  }
  close(descriptor);
  if (code != 0) throw problem(code);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

void MappedFile::release(std::span<const uint8_t> part) const noexcept {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t first = static_cast<size_t>(part.data() - data_) / page * page;
  const size_t last = static_cast<size_t>(part.data() - data_) + part.size();
  // Pages of a shared mapping come back from the file, so one that is still in use costs time only.
  madvise(const_cast<uint8_t*>(data_) + first, last - first, MADV_DONTNEED);
}

}  // namespace halfscope
