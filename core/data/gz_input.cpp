// SPDX-License-Identifier: MIT
#include "core/data/gz_input.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

#include "core/data/read_failure.h"
#include "core/error.h"

namespace halfscope {

GzInput::GzInput(const std::filesystem::path& file)
    : file_(file), handle_(gzopen(file.c_str(), "rb")) {
  if (!handle_) {
    const int code = errno;
    throw Error("cannot open '" + file.string() + "': " +
                    (code != 0 ? read_failure({code, std::generic_category()}) : "out of memory"),
                "check the path and its permissions");
  }
}

size_t GzInput::read(uint8_t* target, size_t size) {
  size_t done = 0;
  while (done < size) {
    constexpr size_t kChunk = size_t{1} << 20;
    const int got =
        gzread(handle_.get(), target + done, static_cast<unsigned>(std::min(size - done, kChunk)));
    int code = Z_OK;
    const char* message = gzerror(handle_.get(), &code);
    // A cut gzip stream still yields the bytes before the cut, and only then the error code.
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) throw_damaged(code, message);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

void GzInput::throw_damaged(int code, const char* message) const {
  const std::string name = file_.string();
  if (code == Z_BUF_ERROR) throw Error(name + ": the gzip stream is truncated", kGetAgain);
  if (code == Z_ERRNO) {
    throw Error("cannot read '" + name + "': " + read_failure({errno, std::generic_category()}),
                "check that it is a readable regular file");
  }
  throw Error(name + ": the gzip stream is damaged (" + message + ")", kGetAgain);
}

void GzInput::Close::operator()(gzFile_s* handle) const noexcept { gzclose_r(handle); }

}  // namespace halfscope
