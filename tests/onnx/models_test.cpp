// SPDX-License-Identifier: MIT
// Published networks, against outputs that PyTorch computed from them. The files are not part of
// the repository; without them the tests skip.
#include <gtest/gtest.h>

#include <functional>

#include "core/data/dataset.h"
#include "core/data/npz.h"
#include "core/policy/policy.h"
#include "tests/data/test_files.h"
#include "tests/onnx/network_support.h"

namespace halfscope {
namespace {

std::filesystem::path model_file(const std::string& name) {
  return test::outside_data("models") / (name + ".onnx");
}

const NamedTensors& expected() {
  static const NamedTensors all = read_npz(test::outside_data("models") / "expected_outputs.npz");
  return all;
}

/// Row `i` of a tensor whose first dimension counts samples.
Tensor row(const Tensor& tensor, int64_t i) {
  Shape shape = tensor.shape;
  shape[0] = 1;
  const int64_t size = element_count(shape);
  return {shape, {tensor.data.begin() + i * size, tensor.data.begin() + (i + 1) * size}};
}

/// The first images of a test set, each as (byte / 255 - mean) / deviation times `factor`.
std::vector<float> image(const Split& split, int64_t i, int64_t size, float factor,
                         const std::vector<double>& mean, const std::vector<double>& deviation) {
  std::vector<float> values;
  for (int64_t k = 0; k < size; ++k) {
    const double byte = split.pixels[static_cast<size_t>(i * size + k)];
    const auto channel = static_cast<size_t>(k / (size / static_cast<int64_t>(mean.size())));
    values.push_back(static_cast<float>((byte / 255.0 - mean[channel]) / deviation[channel]) *
                     factor);
  }
  return values;
}

const Split& mnist() {
  static const Dataset data = load_mnist(test::outside_data("mnist"));
  return data.test;
}
const Split& cifar() {
  static const Dataset data = load_cifar10(test::outside_data("cifar10-subset"));
  return data.test;
}

std::vector<float> digit(int64_t i, float factor) {
  return image(mnist(), i, 784, factor, {0.0}, {1.0});
}
std::vector<float> channels_last(const std::vector<float>& planes) {
  std::vector<float> values(planes.size());
  const size_t pixels = planes.size() / 3;
  for (size_t k = 0; k < planes.size(); ++k) values[k] = planes[k % 3 * pixels + k / 3];
  return values;
}

struct Network {
  std::string name;
  std::function<std::vector<float>(int64_t)> sample;
  int64_t samples = 16;
  std::string expected{};  ///< the name of its outputs, where it is another
  double tolerance = 1e-4;
  int right = 0;  ///< among the first 1,000 test images
  const Split& (*images)() = nullptr;
};

std::vector<float> generated(int64_t) {
  std::vector<float> values(3 * 240 * 320);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t bits = (uint64_t{i} * 1103515245u + 12345u) % (uint64_t{1} << 31);
    values[i] = static_cast<float>(static_cast<double>(bits) / 2147483648.0 * 2.0 - 1.0);
  }
  return values;
}
std::vector<float> picture(int64_t) {
  return read_npy(test::outside_data("models") / "image_1x3x224x224_f32.npy").data;
}
std::vector<float> resnet_image(int64_t i) {
  return image(cifar(), i, 3072, 1.0f, {.485, .456, .406}, {.229, .224, .225});
}

std::vector<Network> networks() {
  std::vector<Network> list{
      {"mnist-8", [](int64_t i) { return digit(i, 255.0f); }, 16, "", 1e-4, 987, mnist},
      {"mnist-8-folded", [](int64_t i) { return digit(i, 255.0f); }, 16, "", 1e-4, 987, mnist},
      {"mnist-fc-256x2", [](int64_t i) { return digit(i, 1.0f); }, 16, "", 1e-4, 978, mnist},
      {"cifar10-resnet2b",
       [](int64_t i) {
         return image(cifar(), i, 3072, 1.0f, {.4914, .4822, .4465}, {.2471, .2435, .2616});
       },
       16, "", 1e-4, 703, cifar},
      {"cifar10-conv-nhwc",
       [](int64_t i) {
         return channels_last(image(cifar(), i, 3072, 1.0f, {0, 0, 0}, {1, 1, 1}));
       },
       16, "", 1e-4, 706, cifar},
      {"resnet20_cifar10", resnet_image, 16, "", 1e-4, 915, cifar},
      // Weights in float16: PyTorch's outputs are those of the float32 ones.
      {"resnet20_cifar10_fp16", resnet_image, 16, "resnet20_cifar10", 5e-3, 916, cifar},
      {"acasxu_1_1", [](int64_t i) { return row(expected().at("acasxu_1_1.in"), i).data; }},
      {"ultraface-rfb-320", generated, 1}};
  for (const char* name : {"resnet50", "shufflenet", "squeezenet", "densenet121"})
    list.push_back({std::string("light_") + name, picture, 1});
  return list;
}

class OnnxModels : public testing::TestWithParam<Network> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(model_file(GetParam().name)))
      GTEST_SKIP() << model_file(GetParam().name) << " is not there";
  }
};

TEST_P(OnnxModels, GiveTheirPublishedOutputs) {
  const Network& network = GetParam();
  const Model model = read_onnx(model_file(network.name)).model;
  const auto running = test::start(model, preset_plan("float32").value());
  const Shape shape = model.graph.value(model.graph.inputs()[0].value).shape;
  const std::string key = network.expected.empty() ? network.name : network.expected;
  for (int64_t i = 0; i < network.samples; ++i) {
    SCOPED_TRACE("sample " + std::to_string(i));
    const std::vector<Tensor> input{{shape, network.sample(i)}};
    ASSERT_EQ(static_cast<int64_t>(input[0].data.size()), element_count(shape));
    const std::vector<Tensor> outputs = test::run(running, input);
    for (size_t k = 0; k < outputs.size(); ++k) {
      const Tensor& all = expected().at(key + ".out" + std::to_string(k));
      Tensor wanted = network.samples > 1 ? row(all, i) : all;
      wanted.shape = outputs[k].shape;
      ASSERT_EQ(wanted.data.size(), outputs[k].data.size());
      test::expect_close(outputs[k], wanted, network.tolerance);
    }
  }
}

class OnnxClassifiers : public OnnxModels {};

TEST_P(OnnxClassifiers, AreRightAsOftenAsPublished) {
  const Network& network = GetParam();
  constexpr int64_t kImages = 1000, kBatch = 100;
  const Model model = read_onnx(model_file(network.name), {.batch = kBatch}).model;
  const auto running = test::start(model, preset_plan("float32").value());
  const Shape shape = model.graph.value(model.graph.inputs()[0].value).shape;
  ASSERT_EQ(shape[0], kBatch);  // also where the file says 1
  int right = 0;
  for (int64_t first = 0; first < kImages; first += kBatch) {
    Tensor input{shape, {}};
    for (int64_t i = first; i < first + kBatch; ++i) {
      const std::vector<float> sample = network.sample(i);
      input.data.insert(input.data.end(), sample.begin(), sample.end());
    }
    const Tensor scores = test::run(running, std::span(&input, 1))[0];
    for (int64_t i = 0; i < kBatch; ++i) {
      const auto* begin = scores.data.data() + i * 10;
      right += std::max_element(begin, begin + 10) - begin ==
               network.images().labels[static_cast<size_t>(first + i)];
    }
  }
  EXPECT_NEAR(right, network.right, 1);  // one image may lie between two classes
}

std::vector<Network> classifiers() {
  std::vector<Network> list = networks();
  std::erase_if(list, [](const Network& network) { return network.images == nullptr; });
  return list;
}

std::string test_name(const testing::TestParamInfo<Network>& info) {
  std::string name = info.param.name;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, OnnxModels, testing::ValuesIn(networks()), test_name);
INSTANTIATE_TEST_SUITE_P(All, OnnxClassifiers, testing::ValuesIn(classifiers()), test_name);

/// Silero VAD: an LSTM in a branch, whose state the caller keeps. Expected values are from ONNX
/// Runtime.
TEST(OnnxModels, AVoiceDetectorWithAnLstm) {
  const std::filesystem::path file = model_file("silero_vad_half");
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  const Model model =
      read_onnx(file, {.batch = 2, .dimensions = {{"batch", 2}, {"sequence", 512}}}).model;
  std::vector<float> noise = generated(0);
  const std::vector<Tensor> inputs{{{2, 512}, {noise.begin(), noise.begin() + 1024}},
                                   {{2, 2, 128}, {noise.begin(), noise.begin() + 512}}};
  const std::vector<Tensor> outputs =
      test::run(test::start(model, preset_plan("float32").value()), inputs);
  ASSERT_EQ(outputs.size(), 2u);
  test::expect_close(outputs[0], {{2, 1}, {0.07630858f, 0.29256445f}}, 1e-5);
  ASSERT_EQ(outputs[1].shape, (Shape{2, 2, 128}));
  double sum = 0.0;
  for (float value : outputs[1].data) sum += static_cast<double>(value);
  EXPECT_NEAR(sum, 19.814061236508614, 1e-3);
  EXPECT_NEAR(outputs[1].data[1], 0.76156545f, 1e-5);
  EXPECT_NEAR(outputs[1].data[510], 0.999623418f, 1e-5);
}

}  // namespace
}  // namespace halfscope
