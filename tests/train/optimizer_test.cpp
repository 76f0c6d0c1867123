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
        "sgd:lr=0.05,momentum=0.9,weight_decay=1e-04", "sgd:lr=0.1,momentum=0.9,nesterov=true",
        "adam:lr=0.001,beta1=0.8,beta2=0.99,eps=1e-06,weight_decay=0.01",
        "adamw:lr=0.001,beta1=0.5,amsgrad=true,maximize=true",
        "sgd:lr=0.1,momentum=0.9,dampening=0.5,maximize=true", "rmsprop:lr=0.01,centered=true"}) {
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
               {"sgd:nesterov=true", "nesterov needs a momentum"},
               {"sgd:momentum=0.9,nesterov=yes", "nesterov=yes is neither true nor false"},
               {"adam:nesterov=true", "nesterov=true is not"},
               {"rmsprop:amsgrad=true", "amsgrad=true is not"},
               {"adam:dampening=0.5", "dampening=0.5 is not valid for adam"},
               {"sgd:centered=true", "centered=true is not valid for sgd"},
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

TEST(ParameterGroups, TextReadsBack) {
  for (const char* text :
       {"*.bias:weight_decay=0", "fc?:lr=0.5", "dense/kernel:0:lr=0.01,weight_decay=0.1",
        "fc1:beta1=0.5,beta2=0.9,eps=1e-06,amsgrad=false", "fc1:momentum=0.9,nesterov=true"}) {
    EXPECT_EQ(parameter_group_text(parse_parameter_group(text)), text);
  }
  EXPECT_EQ(parameter_group_text(parse_parameter_group("fc1:nesterov=1,momentum=0.9,lr=2")),
            "fc1:lr=2,momentum=0.9,nesterov=true");
  EXPECT_EQ(parse_parameter_group("dense/kernel:0:lr=0.01").glob, "dense/kernel:0");
}

TEST(ParameterGroups, FirstMatchAppliesToPathsAndNamesInFiles) {
  const std::vector<ParameterGroup> groups{parse_parameter_group("fc1.*:weight_decay=0"),
                                           parse_parameter_group("*.bias:lr=0.5"),
                                           parse_parameter_group("old:lr=0.25")};
  const Optimizer base = parse_optimizer("adamw");
  const auto of = [&](const char* path, const char* alias) {
    return optimizer_of(base, groups, {.path = path, .alias = alias});
  };
  EXPECT_EQ(of("fc1.bias", "").weight_decay, 0.0);
  EXPECT_EQ(of("fc1.bias", "").learning_rate, base.learning_rate);
  EXPECT_EQ(of("fc2.bias", "").learning_rate, 0.5);
  EXPECT_EQ(of("fc2.bias", "").weight_decay, 0.01);
  EXPECT_EQ(of("fc2.weight", "old").learning_rate, 0.25);
  EXPECT_EQ(of("fc2.weight", ""), base);
}

TEST(ParameterGroups, HaveOptionsOfTheOptimizer) {
  const std::vector<ParameterGroup> groups{parse_parameter_group("a:beta1=0.5,amsgrad=true"),
                                           parse_parameter_group("b:momentum=0.5"),
                                           parse_parameter_group("c:nesterov=true")};
  const Optimizer a = optimizer_of(parse_optimizer("adam:beta2=0.5"), groups, {.path = "a"});
  EXPECT_EQ(a, parse_optimizer("adam:beta1=0.5,beta2=0.5,amsgrad=true"));
  const auto refused = [&](const char* optimizer, const char* path, const std::string& message) {
    try {
      optimizer_of(parse_optimizer(optimizer), groups, {.path = path});
      ADD_FAILURE() << "accepted: " << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_EQ(error.what(), message);
    }
  };
  refused("sgd", "a", "parameter group 'a': sgd has no option 'beta1'");
  refused("adam", "b", "parameter group 'b': adam has no option 'momentum'");
  refused("sgd", "c", "parameter group 'c': nesterov needs a momentum");
  const Optimizer c = optimizer_of(parse_optimizer("sgd:momentum=0.5"), groups, {.path = "c"});
  EXPECT_EQ(c, parse_optimizer("sgd:momentum=0.5,nesterov=true"));
}

TEST(ParameterGroups, ErrorsSayWhatIsWrong) {
  const struct {
    const char *text, *message;
  } table[] = {{"fc1", "'fc1' is not GLOB:OPTION=VALUE"},
               {":lr=1", "':lr=1' is not GLOB:OPTION=VALUE"},
               {"fc1:", "'' is not KEY=VALUE"},
               {"fc1:rate=1", "parameter group 'fc1' has no option 'rate'"},
               {"fc1:lr=x", "parameter group 'fc1': lr=x is not a number >= 0"},
               {"fc1:beta1=1", "parameter group 'fc1': beta1=1 is not below 1"},
               {"fc1:nesterov=yes", "parameter group 'fc1': nesterov=yes is neither true nor"},
               {"fc1:lr=1,lr=2", "lr"}};
  for (const auto& each : table) {
    try {
      parse_parameter_group(each.text);
      ADD_FAILURE() << "accepted: " << each.text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(error.what()).find(each.message), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace halfscope
