// SPDX-License-Identifier: MIT
// The embedded data set: procedurally generated digits. The points of a pen skeleton
// (digit_glyphs.h) are moved, slanted, rotated, scaled and shifted, and the result is drawn as an
// anti-aliased stroke. Some images are also blurred, crossed out, partly erased or speckled. The
// images are bit-for-bit the same on every machine: random numbers are 64-bit integers, and doubles
// only use + - * / and sqrt, which IEEE 754 rounds correctly, without libm or fused multiply-add
// (-ffp-contract=off).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/data/dataset.h"
#include "core/data/digit_glyphs.h"

namespace halfscope {
namespace {

constexpr int kSide = 28;
constexpr int kDigitPixels = kSide * kSide;
constexpr int kDigitClasses = 10;
constexpr int64_t kTrainSamples = 12'000;
constexpr int64_t kTestSamples = 2'000;
constexpr uint64_t kSeed = 0x48616C6653636F70;  // "HalfScop"

/// SplitMix64's output function: a bijection that mixes all bits.
constexpr uint64_t mix(uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

/// Counter-based generator: value i of stream s depends on (s, i) only, so that any image can be
/// drawn without drawing the ones before it.
class Random {
 public:
  explicit Random(uint64_t stream) noexcept : key_(mix(kSeed ^ mix(stream + 1))) {}

  uint64_t bits() noexcept { return mix(key_ + 0x9E3779B97F4A7C15 * ++counter_); }

  /// Returns a number in [0, 1) with 53 random bits.
  double unit() noexcept { return static_cast<double>(bits() >> 11) * 0x1p-53; }

  /// Leaves out one number.
  void skip() noexcept { ++counter_; }

  double between(double low, double high) noexcept { return low + (high - low) * unit(); }

  /// Returns a number in [0, count). The bias of the remainder is below 2^-50 for our counts.
  size_t below(size_t count) noexcept { return static_cast<size_t>(bits() % count); }

  bool chance(double probability) noexcept { return unit() < probability; }

  /// Returns a roughly normal number, the sum of four uniform ones: mean 0, standard deviation 1,
  /// at most 3.46 from 0.
  double bell() noexcept {
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += unit();
    return (sum - 2.0) * 1.7320508075688772;  // sqrt(3): the sum's variance is 4/12
  }

 private:
  uint64_t key_;
  uint64_t counter_ = 0;
};

struct Point {
  double x, y;
};

struct Segment {
  Point from, to;
};

using Image = std::array<double, kDigitPixels>;  // 0 = background, 1 = ink

/// Returns the point at t in [0, 1] between b and c on the Catmull-Rom spline through a, b, c, d.
Point spline_point(Point a, Point b, Point c, Point d, double t) noexcept {
  const auto along = [t](double a0, double b0, double c0, double d0) {
    const double linear = c0 - a0;
    const double square = 2.0 * a0 - 5.0 * b0 + 4.0 * c0 - d0;
    const double cube = 3.0 * b0 - a0 - 3.0 * c0 + d0;
    return 0.5 * (2.0 * b0 + (linear + (square + cube * t) * t) * t);
  };
  return {along(a.x, b.x, c.x, d.x), along(a.y, b.y, c.y, d.y)};
}

/// Splits the skeleton's curves into short straight segments.
std::vector<Segment> flatten(glyphs::Glyph glyph, std::span<const Point> points) {
  constexpr int kPieces = 5;
  std::vector<Segment> segments;
  segments.reserve(points.size() * kPieces);
  for (size_t i = 1; i < points.size(); ++i) {
    if (glyph[i].pen == glyphs::Pen::lift) continue;
    const bool starts = i == 1 || glyph[i - 1].pen != glyphs::Pen::curve;
    const bool ends = i + 1 == points.size() || glyph[i].pen == glyphs::Pen::corner ||
                      glyph[i + 1].pen == glyphs::Pen::lift;
    const Point before = starts ? points[i - 1] : points[i - 2];
    const Point after = ends ? points[i] : points[i + 1];
    Point from = points[i - 1];
    for (int piece = 1; piece <= kPieces; ++piece) {
      const Point to = spline_point(before, points[i - 1], points[i], after,
                                    static_cast<double>(piece) / kPieces);
      segments.push_back({from, to});
      from = to;
    }
  }
  return segments;
}

/// Moves the centre of mass of the ink to the image's centre plus `shift`, as MNIST does.
void centre(std::vector<Segment>& segments, Point shift) noexcept {
  double length = 0, sum_x = 0, sum_y = 0;
  for (const Segment& s : segments) {
    const double dx = s.to.x - s.from.x, dy = s.to.y - s.from.y;
    const double piece = std::sqrt(dx * dx + dy * dy);
    length += piece;
    sum_x += piece * 0.5 * (s.from.x + s.to.x);
    sum_y += piece * 0.5 * (s.from.y + s.to.y);
  }
  const double x = 0.5 * kSide + shift.x - sum_x / length;
  const double y = 0.5 * kSide + shift.y - sum_y / length;
  for (Segment& s : segments) {
    s.from = {s.from.x + x, s.from.y + y};
    s.to = {s.to.x + x, s.to.y + y};
  }
}

/// Returns the pixels [first, last) of a row or column whose centres can be within `reach` of a
/// stroke from a to b.
std::pair<int, int> pixels_near(double a, double b, double reach) noexcept {
  // Truncation is floor here: values are >= 0.
  const auto inside = [](double x) { return static_cast<int>(std::clamp(x, 0.0, double{kSide})); };
  return {inside(std::min(a, b) - reach + 0.5), inside(std::max(a, b) + reach + 0.5)};
}

/// Returns how much of each pixel a pen of the given radius covers; its edge fades over `edge`
/// pixels.
Image draw(std::span<const Segment> segments, double radius, double edge) noexcept {
  const double reach = radius + 0.5 * edge, out_of_reach = reach * reach;
  Image nearest;  // squared distances
  nearest.fill(out_of_reach);
  for (const Segment& s : segments) {
    const auto [left, right] = pixels_near(s.from.x, s.to.x, reach);
    const auto [top, bottom] = pixels_near(s.from.y, s.to.y, reach);
    const double dx = s.to.x - s.from.x, dy = s.to.y - s.from.y;
    const double squared_length = dx * dx + dy * dy;
    const double divisor = squared_length > 0 ? squared_length : 1.0;
    for (int y = top; y < bottom; ++y) {
      const double py = y + 0.5 - s.from.y;
      for (int x = left; x < right; ++x) {
        const double px = x + 0.5 - s.from.x;
        const double t = std::clamp((px * dx + py * dy) / divisor, 0.0, 1.0);
        const double ex = px - t * dx, ey = py - t * dy;
        double& best = nearest[static_cast<size_t>(y * kSide + x)];
        best = std::min(best, ex * ex + ey * ey);
      }
    }
  }
  Image image{};
  for (size_t i = 0; i < image.size(); ++i) {
    if (nearest[i] == out_of_reach) continue;
    image[i] = std::clamp((reach - std::sqrt(nearest[i])) / edge, 0.0, 1.0);
  }
  return image;
}

/// Returns a straight stroke through a random point near the middle.
Segment random_line(Random& random) noexcept {
  const Point middle{random.between(7, 21), random.between(7, 21)};
  const Point half{random.between(-8, 8), random.between(-8, 8)};
  return {{middle.x - half.x, middle.y - half.y}, {middle.x + half.x, middle.y + half.y}};
}

/// Applies a 3x3 binomial filter.
void blur(Image& image) noexcept {
  const Image source = image;
  const auto at = [&source](int y, int x) {
    const bool inside = y >= 0 && y < kSide && x >= 0 && x < kSide;
    return inside ? source[static_cast<size_t>(y * kSide + x)] : 0.0;
  };
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) {
      const double cross = at(y, x - 1) + at(y, x + 1) + at(y - 1, x) + at(y + 1, x);
      const double diagonal =
          at(y - 1, x - 1) + at(y - 1, x + 1) + at(y + 1, x - 1) + at(y + 1, x + 1);
      image[static_cast<size_t>(y * kSide + x)] =
          0.25 * at(y, x) + 0.125 * cross + 0.0625 * diagonal;
    }
  }
}

/// Returns the skeleton in pixels with a random slant, rotation, size, jitter and shift.
std::vector<Segment> write_skeleton(glyphs::Glyph glyph, Random& random) {
  constexpr double kPixelsPerUnit = 9.6;  // MNIST's digits are 20 pixels high
  const double jitter = random.between(0.02, 0.12);
  const double slant = 0.15 + 0.20 * random.bell();
  // With h = tan(angle/2), sine and cosine are rational: no libm needed.
  const double h = 0.075 * random.bell();
  const double cosine = (1.0 - h * h) / (1.0 + h * h), sine = 2.0 * h / (1.0 + h * h);
  const double height = kPixelsPerUnit * random.between(0.82, 1.06);
  const double width = height * random.between(0.80, 1.30);
  std::vector<Point> points;
  points.reserve(glyph.size());
  for (const glyphs::GlyphPoint& p : glyph) {
    const double move_x = jitter * random.bell();
    const double move_y = jitter * random.bell();
    const double x = width * (p.x + move_x - slant * p.y), y = height * (p.y + move_y);
    points.push_back({cosine * x - sine * y, sine * x + cosine * y});
  }
  std::vector<Segment> segments = flatten(glyph, points);
  const double shift_x = 0.5 * random.bell();
  const double shift_y = 0.5 * random.bell();
  centre(segments, {shift_x, shift_y});
  return segments;
}

/// Draws one sample; its label is stream modulo 10.
void draw_sample(uint64_t stream, std::span<uint8_t> pixels) {
  Random random(stream);
  const std::span<const glyphs::Glyph> styles = glyphs::kStyles[stream % kDigitClasses];
  const std::vector<Segment> skeleton = write_skeleton(styles[random.below(styles.size())], random);
  const double radius = random.between(0.75, 1.70);
  const double edge = random.between(0.8, 1.4);
  Image image = draw(skeleton, radius, edge);

  if (random.chance(0.12)) {  // crossed by a stray stroke
    const Segment line = random_line(random);
    const Image stray = draw({&line, 1}, random.between(0.4, 0.9), 1.0);
    for (size_t i = 0; i < image.size(); ++i) image[i] = std::max(image[i], stray[i]);
  }
  if (random.chance(0.15)) {  // a streak rubbed out
    const Segment line = random_line(random);
    const Image streak = draw({&line, 1}, random.between(0.8, 1.8), 1.0);
    for (size_t i = 0; i < image.size(); ++i) image[i] *= 1.0 - streak[i];
  }
  if (random.chance(0.15)) blur(image);
  if (random.chance(0.12)) {  // specks of dust
    const size_t specks = 4 + random.below(16);
    for (size_t i = 0; i < specks; ++i) {
      const size_t where = random.below(kDigitPixels);
      image[where] = std::max(image[where], random.between(0.2, 1.0));
    }
  }
  // The ink is uneven, but the background stays exactly zero, as in MNIST.
  const double ink = random.between(0.90, 1.30);
  const double grain = random.between(0.0, 0.30);
  for (size_t i = 0; i < image.size(); ++i) {
    if (image[i] == 0) {
      random.skip();
      continue;
    }
    const double value = image[i] * ink * (1.0 - grain * random.unit());
    pixels[i] = static_cast<uint8_t>(std::min(value, 1.0) * 255.0 + 0.5);
  }
}

/// Makes samples first to first + count - 1, with equally many of each class, in random order.
Split make_split(uint64_t first, int64_t count) {
  std::vector<uint64_t> order(static_cast<size_t>(count));
  for (size_t i = 0; i < order.size(); ++i) order[i] = first + i;
  Random random(~first);  // a stream that no sample uses
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);

  Split split;
  split.pixels.resize(order.size() * kDigitPixels);
  split.labels.resize(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    split.labels[i] = static_cast<int32_t>(order[i] % kDigitClasses);
    draw_sample(order[i], std::span(split.pixels).subspan(i * kDigitPixels, kDigitPixels));
  }
  return split;
}

}  // namespace

Dataset make_digits() {
  return {.name = "digits",
          .sample_shape = {1, kSide, kSide},
          .classes = kDigitClasses,
          .train = make_split(0, kTrainSamples),
          .test = make_split(kTrainSamples, kTestSamples)};
}

}  // namespace halfscope
