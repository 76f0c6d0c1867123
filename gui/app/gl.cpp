// SPDX-License-Identifier: MIT
// Textures and frame buffers of OpenGL 3.3, contexts without a display by EGL 1.5
// (EGL_MESA_platform_surfaceless, else the default display).
#include "gui/app/gl.h"

#define GL_GLEXT_PROTOTYPES
#include <EGL/egl.h>
#include <EGL/eglext.h>
#include <GL/gl.h>
#include <GL/glext.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "analysis/output_file.h"
#include "core/error.h"
#include "gui/widgets/png.h"

namespace halfscope::gui {

GlTextures::~GlTextures() {
  for (const auto& [name, texture] : textures_) glDeleteTextures(1, &texture.id);
}

ImTextureID GlTextures::update(std::string_view name, int width, int height,
                               std::span<const ImU32> rgba) {
  Texture& texture = textures_.try_emplace(std::string(name)).first->second;
  GLint bound = 0;
  glGetIntegerv(GL_TEXTURE_BINDING_2D, &bound);
  if (texture.id == 0) {
    glGenTextures(1, &texture.id);
    glBindTexture(GL_TEXTURE_2D, texture.id);
    glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MIN_FILTER, GL_NEAREST);
    glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MAG_FILTER, GL_NEAREST);
    glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_WRAP_S, GL_CLAMP_TO_EDGE);
    glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_WRAP_T, GL_CLAMP_TO_EDGE);
  } else {
    glBindTexture(GL_TEXTURE_2D, texture.id);
  }
  glPixelStorei(GL_UNPACK_ALIGNMENT, 4);
  glPixelStorei(GL_UNPACK_ROW_LENGTH, 0);
  if (texture.width == width && texture.height == height) {
    glTexSubImage2D(GL_TEXTURE_2D, 0, 0, 0, width, height, GL_RGBA, GL_UNSIGNED_BYTE, rgba.data());
  } else {
    glTexImage2D(GL_TEXTURE_2D, 0, GL_RGBA8, width, height, 0, GL_RGBA, GL_UNSIGNED_BYTE,
                 rgba.data());
    texture.width = width;
    texture.height = height;
  }
  glBindTexture(GL_TEXTURE_2D, static_cast<GLuint>(bound));
  return (ImTextureID)(intptr_t)texture.id;  // an integer or a pointer
}

struct Offscreen::Handles {
  EGLDisplay display = EGL_NO_DISPLAY;
  EGLContext context = EGL_NO_CONTEXT;
  GLuint frame = 0, color = 0;
};

namespace {

constexpr const char* kHint =
    "install OpenGL for machines without a display (on Debian: "
    "apt-get install libegl1 libgl1-mesa-dri)";

EGLDisplay open_display() {
  const auto open = reinterpret_cast<PFNEGLGETPLATFORMDISPLAYEXTPROC>(
      eglGetProcAddress("eglGetPlatformDisplayEXT"));
  const char* extensions = eglQueryString(EGL_NO_DISPLAY, EGL_EXTENSIONS);
  const std::string_view known = extensions != nullptr ? extensions : "";
  EGLint major = 0, minor = 0;
  if (open != nullptr && known.find("EGL_MESA_platform_surfaceless") != known.npos) {
    const EGLDisplay display = open(EGL_PLATFORM_SURFACELESS_MESA, EGL_DEFAULT_DISPLAY, nullptr);
    if (display != EGL_NO_DISPLAY && eglInitialize(display, &major, &minor)) return display;
  }
  const EGLDisplay display = eglGetDisplay(EGL_DEFAULT_DISPLAY);
  if (display != EGL_NO_DISPLAY && eglInitialize(display, &major, &minor)) return display;
  throw Error("cannot draw without a display: EGL failed to start", kHint);
}

}  // namespace

Offscreen::Offscreen(int width, int height)
    : handles_(std::make_unique<Handles>()), width_(width), height_(height) {
  handles_->display = open_display();
  eglBindAPI(EGL_OPENGL_API);
  constexpr std::array<EGLint, 7> kVersion{EGL_CONTEXT_MAJOR_VERSION,
                                           3,
                                           EGL_CONTEXT_MINOR_VERSION,
                                           3,
                                           EGL_CONTEXT_OPENGL_PROFILE_MASK,
                                           EGL_CONTEXT_OPENGL_CORE_PROFILE_BIT,
                                           EGL_NONE};
  handles_->context =
      eglCreateContext(handles_->display, EGL_NO_CONFIG_KHR, EGL_NO_CONTEXT, kVersion.data());
  if (handles_->context == EGL_NO_CONTEXT ||
      !eglMakeCurrent(handles_->display, EGL_NO_SURFACE, EGL_NO_SURFACE, handles_->context)) {
    throw Error("cannot draw without a display: OpenGL 3.3 is not available", kHint);
  }
  glGenRenderbuffers(1, &handles_->color);
  glBindRenderbuffer(GL_RENDERBUFFER, handles_->color);
  glRenderbufferStorage(GL_RENDERBUFFER, GL_RGBA8, width, height);
  glGenFramebuffers(1, &handles_->frame);
  glBindFramebuffer(GL_FRAMEBUFFER, handles_->frame);
  glFramebufferRenderbuffer(GL_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_RENDERBUFFER, handles_->color);
  if (glCheckFramebufferStatus(GL_FRAMEBUFFER) != GL_FRAMEBUFFER_COMPLETE) {
    throw Error("cannot draw a picture this large", "choose a smaller --size");
  }
}

Offscreen::~Offscreen() {
  glDeleteFramebuffers(1, &handles_->frame);
  glDeleteRenderbuffers(1, &handles_->color);
  eglMakeCurrent(handles_->display, EGL_NO_SURFACE, EGL_NO_SURFACE, EGL_NO_CONTEXT);
  eglDestroyContext(handles_->display, handles_->context);
  eglTerminate(handles_->display);
}

void Offscreen::begin(ImU32 ground) {
  glBindFramebuffer(GL_FRAMEBUFFER, handles_->frame);
  glViewport(0, 0, width_, height_);
  const auto part = [ground](int shift) {
    return static_cast<float>((ground >> shift) & 255) / 255.0f;
  };
  glClearColor(part(IM_COL32_R_SHIFT), part(IM_COL32_G_SHIFT), part(IM_COL32_B_SHIFT), 1.0f);
  glClear(GL_COLOR_BUFFER_BIT);
}

void Offscreen::save_png(const std::string& file) const { save_frame(file, width_, height_); }

void save_frame(const std::string& file, int width, int height) {
  const auto row = static_cast<size_t>(width) * 4;
  std::vector<unsigned char> pixels(row * static_cast<size_t>(height));
  glReadPixels(0, 0, width, height, GL_RGBA, GL_UNSIGNED_BYTE, pixels.data());
  // OpenGL counts rows from the bottom. Alpha is set to 255, or a page background would show
  // through.
  std::vector<unsigned char> picture(pixels.size());
  for (int y = 0; y < height; ++y) {
    const auto from = pixels.begin() + static_cast<std::ptrdiff_t>(row) * (height - 1 - y);
    std::copy(from, from + static_cast<std::ptrdiff_t>(row),
              picture.begin() + static_cast<std::ptrdiff_t>(row) * y);
  }
  for (size_t i = 3; i < picture.size(); i += 4) picture[i] = 255;
  write_output_file(file, png_bytes(width, height, 4, picture), true);
}

}  // namespace halfscope::gui
