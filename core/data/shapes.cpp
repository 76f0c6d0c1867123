// SPDX-License-Identifier: MIT
// The embedded data set for detectors: squares, discs and triangles of any color on a noisy ground,
// one to three in an image, hardly overlapping. All numbers are integers until the last step, so
// the images are the same on every machine.
#include "core/data/shapes.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "core/numeric/formats/rng.h"

namespace halfscope {
namespace {

constexpr int64_t kChannels = 3;
constexpr int64_t kTrainShapes = 1024, kTestShapes = 192;
constexpr const char* kObjectsArray = "objects";
constexpr uint64_t kShapesSeed = 0x536861706573;  // "Shapes"

class ShapeDraws {
 public:
  explicit ShapeDraws(uint64_t stream) : key_(random_key(kShapesSeed, stream, 0)) {}
  /// A whole number from `least` to `most`.
  int64_t between(int64_t least, int64_t most) {
    const uint64_t count = static_cast<uint64_t>(most - least + 1);
    return least + static_cast<int64_t>(random_word(key_, counter_++) % count);
  }

 private:
  uint64_t key_, counter_ = 0;
};

/// Returns whether the pixel's center belongs to the shape; doubled coordinates, so that centers
/// are whole numbers.
bool covers(int32_t label, const Box& box, int64_t x, int64_t y) {
  const auto left = 2 * static_cast<int64_t>(box.left), top = 2 * static_cast<int64_t>(box.top);
  const auto size = 2 * static_cast<int64_t>(box.width());
  const int64_t dx = 2 * x + 1 - left, dy = 2 * y + 1 - top;
  if (dx < 0 || dy < 0 || dx > size || dy > size) return false;
  if (label == 1) return true;
  if (label == 2)
    return (2 * dx - size) * (2 * dx - size) + (2 * dy - size) * (2 * dy - size) <= size * size;
  return 2 * dx >= size - dy && 2 * dx <= size + dy;  // the tip is above the middle
}

struct DrawnImage {
  std::array<uint8_t, kChannels * kShapesSide * kShapesSide> pixels{};
  std::vector<LabelledBox> objects;
};

DrawnImage draw(uint64_t number) {
  constexpr int64_t kSmallest = 16, kLargest = 40, kTries = 20;
  ShapeDraws random(number);
  DrawnImage image;
  const int64_t ground = random.between(40, 200);
  for (uint8_t& pixel : image.pixels) {
    pixel = static_cast<uint8_t>(std::clamp<int64_t>(ground + random.between(-10, 10), 0, 255));
  }
  const int64_t wanted = random.between(1, kMostShapes);
  for (int64_t attempt = 0; attempt < kTries; ++attempt) {
    if (static_cast<int64_t>(image.objects.size()) == wanted) break;
    const int64_t size = random.between(kSmallest, kLargest);
    const int64_t left = random.between(0, kShapesSide - size),
                  top = random.between(0, kShapesSide - size);
    const LabelledBox object{static_cast<int32_t>(random.between(1, 3)),
                             {static_cast<float>(left), static_cast<float>(top),
                              static_cast<float>(left + size), static_cast<float>(top + size)}};
    std::array<int64_t, kChannels> color{};
    for (int64_t& each : color) each = random.between(0, 255);
    const bool visible = std::any_of(color.begin(), color.end(), [&](int64_t each) {
      return each > ground + 60 || each < ground - 60;
    });
    const bool overlaps =
        std::any_of(image.objects.begin(), image.objects.end(), [&](const LabelledBox& other) {
          return intersection_over_union(other.box, object.box) > 0.1;
        });
    if (overlaps || !visible) continue;
    image.objects.push_back(object);
    for (int64_t y = top; y < top + size; ++y) {
      for (int64_t x = left; x < left + size; ++x) {
        if (!covers(object.label, object.box, x, y)) continue;
        for (int64_t c = 0; c < kChannels; ++c) {
          image.pixels[static_cast<size_t>((c * kShapesSide + y) * kShapesSide + x)] =
              static_cast<uint8_t>(color[static_cast<size_t>(c)]);
        }
      }
    }
  }
  return image;
}

Split part(uint64_t first, int64_t images) {
  const std::vector<Box> anchors = make_anchors(kShapesSide);
  const auto count = static_cast<int64_t>(anchors.size());
  SampleArray input{
      .name = "input", .sample_shape = {kChannels, kShapesSide, kShapesSide}, .samples = images};
  SampleArray labels{.name = "class_targets", .sample_shape = {count}, .samples = images};
  SampleArray codes{.name = "box_targets", .sample_shape = {count, 4}, .samples = images};
  SampleArray objects{.name = kObjectsArray, .sample_shape = {kMostShapes, 5}, .samples = images};
  for (int64_t i = 0; i < images; ++i) {
    const DrawnImage image = draw(first + static_cast<uint64_t>(i));
    for (const uint8_t pixel : image.pixels) {
      input.reals.push_back((static_cast<float>(pixel) - 127.5f) / 64.0f);
    }
    const AnchorTargets targets = anchor_targets(anchors, image.objects);
    labels.integers.insert(labels.integers.end(), targets.labels.begin(), targets.labels.end());
    for (const std::array<float, 4>& code : targets.codes) {
      codes.reals.insert(codes.reals.end(), code.begin(), code.end());
    }
    for (size_t k = 0; k < static_cast<size_t>(kMostShapes); ++k) {
      const LabelledBox object = k < image.objects.size() ? image.objects[k] : LabelledBox{};
      objects.reals.insert(objects.reals.end(),
                           {static_cast<float>(object.label), object.box.left, object.box.top,
                            object.box.right, object.box.bottom});
    }
  }
  Split split;
  for (SampleArray* each : {&input, &labels, &codes, &objects}) {
    split.arrays.push_back(std::move(*each));
  }
  return split;
}

/// Returns the objects of the test part; null if there are none.
const SampleArray* objects_of(const Dataset& data) {
  const auto found =
      std::find_if(data.test.arrays.begin(), data.test.arrays.end(),
                   [](const SampleArray& each) { return each.name == kObjectsArray; });
  return found == data.test.arrays.end() ? nullptr : &*found;
}

}  // namespace

Dataset make_shapes() {
  Dataset data;
  data.name = "shapes";
  data.sample_shape = {kChannels, kShapesSide, kShapesSide};
  data.classes = kShapeClasses;
  data.train = part(0, kTrainShapes);
  data.test = part(uint64_t{1} << 32, kTestShapes);
  return data;
}

std::vector<std::vector<LabelledBox>> objects_in(const SampleArray& array) {
  const int64_t most = array.sample_shape.at(0);
  std::vector<std::vector<LabelledBox>> objects(static_cast<size_t>(array.samples));
  for (size_t i = 0; i < objects.size(); ++i) {
    for (int64_t k = 0; k < most; ++k) {
      const float* const row = array.reals.data() + (static_cast<int64_t>(i) * most + k) * 5;
      if (row[0] > 0.0f) {
        objects[i].push_back({static_cast<int32_t>(row[0]), {row[1], row[2], row[3], row[4]}});
      }
    }
  }
  return objects;
}

bool has_detection_score(const Dataset& data, const std::map<std::string, Shape>& outputs) {
  const SampleArray* const objects = objects_of(data);
  const auto classes = outputs.find("classes"), boxes = outputs.find("boxes");
  if (objects == nullptr || classes == outputs.end() || boxes == outputs.end()) return false;
  if (data.sample_shape.size() != 3 || objects->sample_shape.size() != 2) return false;
  const Shape& logits = classes->second;
  const auto count = static_cast<int64_t>(make_anchors(data.sample_shape[1]).size());
  return logits.size() == 3 && logits[1] == count && boxes->second == Shape{logits[0], count, 4};
}

std::optional<DetectionScore> detection_score(const Dataset& data, const NamedTensors& outputs) {
  std::map<std::string, Shape> shapes;
  for (const auto& [name, tensor] : outputs) shapes[name] = tensor.shape;
  if (!has_detection_score(data, shapes)) return std::nullopt;
  const auto classes = outputs.find("classes"), boxes = outputs.find("boxes");
  const std::vector<Box> anchors = make_anchors(data.sample_shape[1]);
  const Shape& logits = classes->second.shape;
  const auto count = static_cast<int64_t>(anchors.size());
  std::vector<std::vector<LabelledBox>> objects = objects_in(*objects_of(data));
  objects.resize(std::min(objects.size(), static_cast<size_t>(logits[0])));
  std::vector<FoundBox> found;
  const auto row = static_cast<size_t>(count * logits[2]),
             code_row = static_cast<size_t>(count * 4);
  for (size_t i = 0; i < objects.size(); ++i) {
    const auto of =
        found_boxes(static_cast<int64_t>(i), std::span(classes->second.data).subspan(i * row, row),
                    std::span(boxes->second.data).subspan(i * code_row, code_row), anchors);
    found.insert(found.end(), of.begin(), of.end());
  }
  DetectionScore score;
  constexpr int kSteps = 10;
  for (int step = 0; step < kSteps; ++step) {
    const double precision = mean_average_precision(found, objects, 0.5 + 0.05 * step);
    if (step == 0) score.half = precision;
    score.mean += precision / kSteps;
  }
  return score;
}

}  // namespace halfscope
