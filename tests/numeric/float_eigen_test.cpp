// SPDX-License-Identifier: MIT
// Eigen matrices of Float<F>, against loops and against Eigen's own half.
#include <gtest/gtest.h>

#include <Eigen/Core>
#include <Eigen/LU>
#include <bit>
#include <cmath>
#include <random>

#include "core/numeric/types/eigen.h"
#include "core/numeric/types/float_types.h"

namespace halfscope {
namespace {

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;

template <class T>
Matrix<T> random_matrix(int rows, int cols, uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> any(-1, 1);
  return Matrix<T>::NullaryExpr(rows, cols, [&] { return T(any(generator)); });
}

template <class T>
class FloatEigenTest : public ::testing::Test {};
// One of each encoding: every product is a minute of compiling under the sanitizers.
using SomeFloats = ::testing::Types<half, bfloat16, float8_e4m3, float8_e4m3fnuz, float4_e2m1>;
TYPED_TEST_SUITE(FloatEigenTest, SomeFloats);

TYPED_TEST(FloatEigenTest, ProductsOfSmallIntegersAreExact) {
  using T = TypeParam;
  const Matrix<T> a = Matrix<T>::Identity(9, 9), b = Matrix<T>::Constant(9, 4, T(1.5f));
  EXPECT_EQ(a * b, b);
  EXPECT_EQ((b + b).eval(), Matrix<T>::Constant(9, 4, T(3)));
  EXPECT_EQ((b - b).cwiseAbs().maxCoeff(), T{});
  EXPECT_EQ(b.topLeftCorner(1, 2).sum(), T(3));
  EXPECT_EQ(Matrix<T>::Constant(1, 4, T(1)).norm(), T(2));
  EXPECT_EQ(b.transpose()(3, 8), T(1.5f));
  EXPECT_TRUE(b.isApprox(b));
  EXPECT_EQ(b.template cast<float>().sum(), 54.0f);
}

TEST(FloatEigenTest, EveryOperationOfAProductIsRoundedAndCounted) {
  const Matrix<half> a = random_matrix<half>(7, 33, 1), b = random_matrix<half>(33, 5, 2);
  Matrix<half> product(7, 5);
  const FloatEventScope scope;
  product.noalias() = a.lazyProduct(b);
  EXPECT_EQ(scope.counts().operations, 7u * 5 * (33 + 32));  // 33 products, 32 sums
  const Matrix<double> exact = a.cast<double>() * b.cast<double>();
  EXPECT_LT((product.cast<double>() - exact).cwiseAbs().maxCoeff(), 33 * 33 * 0x1p-11);
}

TEST(FloatEigenTest, SumsAndNormsAreThoseOfEigensHalf) {
  const Matrix<half> ours = random_matrix<half>(40, 1, 3);
  const Matrix<Eigen::half> theirs = random_matrix<Eigen::half>(40, 1, 3);
  half loop{};
  for (int i = 0; i < 40; ++i) {
    ASSERT_EQ(static_cast<float>(ours(i)), static_cast<float>(theirs(i)));
    loop += ours(i);
  }
  // Without vector instructions, Eigen adds elements one by one.
  EXPECT_EQ(ours.sum(), loop);
  const double norm = ours.cast<double>().norm();
  EXPECT_NEAR(static_cast<double>(ours.norm()), norm, 40 * 0x1p-11 * norm);
  EXPECT_NEAR(static_cast<double>(ours.norm()), static_cast<double>(theirs.norm()), 0.02);
}

TEST(FloatEigenTest, Decompositions) {
  Matrix<half> a = random_matrix<half>(6, 6, 4);
  a.diagonal().array() += half(6);
  const Matrix<half> b = random_matrix<half>(6, 1, 5);
  const Matrix<half> x = a.partialPivLu().solve(b);
  const Matrix<double> residual = a.cast<double>() * x.cast<double>() - b.cast<double>();
  EXPECT_LT(residual.norm(), 0.01);
}

}  // namespace
}  // namespace halfscope
