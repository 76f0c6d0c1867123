// SPDX-License-Identifier: MIT
// The values that --optimizer accepts, and the text that is written to the run file.
#include "core/lower/optimizer.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace halfscope {
namespace {

TEST(Optimizer, Sgd) {
  const Optimizer plain = parse_optimizer("sgd");
  EXPECT_EQ(plain.kind, Optimizer::Kind::sgd);
  EXPECT_EQ(plain.learning_rate, 0.1);
  EXPECT_EQ(plain.momentum, 0.0);
  EXPECT_EQ(plain.weight_decay, 0.0);
  const Optimizer full = parse_optimizer("sgd:momentum=0.9,weight_decay=1e-4");
  EXPECT_EQ(full.momentum, 0.9);
  EXPECT_EQ(full.weight_decay, 1e-4);
}

TEST(Optimizer, Adam) {
  const Optimizer plain = parse_optimizer("adam");
  EXPECT_EQ(plain.kind, Optimizer::Kind::adam);
  EXPECT_EQ(plain.learning_rate, 0.001);
  EXPECT_EQ(plain.beta1, 0.9);
  EXPECT_EQ(plain.beta2, 0.999);
  EXPECT_EQ(plain.eps, 1e-8);
  const Optimizer full = parse_optimizer("adam:beta1=0.8,beta2=0.99,eps=1e-6,weight_decay=0.01");
  EXPECT_EQ(full.beta1, 0.8);
  EXPECT_EQ(full.beta2, 0.99);
  EXPECT_EQ(full.eps, 1e-6);
  EXPECT_EQ(full.weight_decay, 0.01);
}

TEST(Optimizer, DefaultsArePyTorchs) {
  EXPECT_EQ(parse_optimizer("adamw").weight_decay, 0.01);
  EXPECT_EQ(parse_optimizer("adamw").learning_rate, 0.001);
  EXPECT_EQ(parse_optimizer("adam").weight_decay, 0.0);
  const Optimizer rms = parse_optimizer("rmsprop");
  EXPECT_EQ(rms.learning_rate, 0.01);
  EXPECT_EQ(rms.alpha, 0.99);
  EXPECT_EQ(rms.eps, 1e-8);
  EXPECT_EQ(rms.momentum, 0.0);
}

TEST(Optimizer, TextReadsBack) {
  for (const char* text :
       {"sgd:lr=0.1", "adam:lr=0.001", "adamw:lr=0.001", "adamw:lr=0.002,eps=1e-06,weight_decay=0",
        "rmsprop:lr=0.01", "rmsprop:lr=0.1,alpha=0.9,momentum=0.5,eps=1e-06,weight_decay=0.01",
        "sgd:lr=0.05,momentum=0.9,weight_decay=1e-04",
        "adam:lr=0.001,beta1=0.8,beta2=0.99,eps=1e-06,weight_decay=0.01"}) {
    EXPECT_EQ(optimizer_text(parse_optimizer(text)), text);
  }
  EXPECT_EQ(optimizer_text(parse_optimizer("sgd:momentum=0")), "sgd:lr=0.1");
}

TEST(Optimizer, ErrorsNameTheOption) {
  const struct {
    const char *text, *message;
  } table[] = {{"rmspop", "unknown optimizer 'rmspop'"},
               {"sgd:momentum=1", "momentum=1 is not valid for sgd"},
               {"rmsprop:alpha=1", "alpha=1 is not valid for rmsprop"},
               {"adamw:alpha=0.9", "alpha=0.9 is not valid for adamw"},
               {"", "unknown optimizer ''"},
               {"sgd:momentum", "'momentum' is not KEY=VALUE"},
               {"sgd:momentum=0.9,", "'' is not KEY=VALUE"},
               {"sgd:", "'' is not KEY=VALUE"},
               {"sgd:momentum=", "momentum= is not a number >= 0"},
               {"sgd:momentum=x", "momentum=x is not a number >= 0"},
               {"sgd:momentum=-0.1", "momentum=-0.1 is not a number >= 0"},
               {"sgd:momentum=nan", "momentum=nan is not a number >= 0"},
               {"sgd:momentum=inf", "momentum=inf is not a number >= 0"},
               {"sgd:momentum=1e999", "momentum=1e999 is not a number >= 0"},
               {"sgd:beta1=0.9", "beta1=0.9 is not valid for sgd"},
               {"adam:momentum=0.9", "momentum=0.9 is not valid for adam"},
               {"adam:beta1=1", "beta1=1 is not valid for adam"},
               {"adam:beta2=1.5", "beta2=1.5 is not valid for adam"},
               {"sgd:lr=-1", "lr=-1 is not a number >= 0"}};
  for (const auto& each : table) {
    try {
      parse_optimizer(each.text);
      ADD_FAILURE() << "accepted: " << each.text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(error.what()).find(each.message), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace halfscope
