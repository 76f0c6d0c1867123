// SPDX-License-Identifier: MIT
// Pen skeletons of the ten digits, several styles each, for make_digits(). x grows to the right,
// y downwards; a digit is about 2 high (-1..1). Between two points the pen follows a Catmull-Rom
// spline; a corner breaks the tangent, a lift starts a new stroke. Changing a number changes
// every image, and so the results of everyone who trains on them: add a data set instead.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace halfscope::glyphs {

enum class Pen : uint8_t { lift, curve, corner };

struct GlyphPoint {
  Pen pen;
  double x, y;
};

using Glyph = std::span<const GlyphPoint>;

// Short names keep the tables below readable as drawings.
inline constexpr Pen L = Pen::lift;
inline constexpr Pen C = Pen::curve;
inline constexpr Pen K = Pen::corner;

inline constexpr GlyphPoint kZeroOval[] = {
    {L, 0.10, -1.00}, {C, -0.35, -0.80}, {C, -0.58, -0.20}, {C, -0.55, 0.40}, {C, -0.20, 0.95},
    {C, 0.20, 0.95},  {C, 0.55, 0.45},   {C, 0.58, -0.30},  {C, 0.35, -0.85}, {C, 0.00, -0.98}};
inline constexpr GlyphPoint kZeroOpen[] = {{L, 0.25, -0.90}, {C, -0.20, -0.85}, {C, -0.50, -0.10},
                                           {C, -0.35, 0.75}, {C, 0.10, 1.00},   {C, 0.50, 0.50},
                                           {C, 0.55, -0.30}, {C, 0.25, -0.85},  {C, -0.15, -1.00}};
inline constexpr GlyphPoint kZeroRound[] = {{L, 0.00, -0.80}, {C, -0.55, -0.58}, {C, -0.80, 0.00},
                                            {C, -0.55, 0.58}, {C, 0.00, 0.80},   {C, 0.55, 0.58},
                                            {C, 0.80, 0.00},  {C, 0.55, -0.58},  {C, 0.05, -0.82}};

inline constexpr GlyphPoint kOneBar[] = {{L, 0.08, -1.00}, {C, 0.00, 0.00}, {C, -0.05, 1.00}};
inline constexpr GlyphPoint kOneFlag[] = {{L, -0.35, -0.60}, {K, 0.05, -1.00}, {C, 0.05, 1.00}};
inline constexpr GlyphPoint kOneBase[] = {
    {L, -0.35, -0.65}, {K, 0.03, -1.00}, {C, 0.03, 0.95}, {L, -0.45, 0.95}, {C, 0.45, 0.95}};

inline constexpr GlyphPoint kTwoPlain[] = {{L, -0.50, -0.55}, {C, -0.20, -0.95}, {C, 0.30, -0.90},
                                           {C, 0.50, -0.45},  {C, 0.20, 0.10},   {C, -0.20, 0.55},
                                           {K, -0.55, 0.95},  {C, 0.60, 0.95}};
inline constexpr GlyphPoint kTwoLoop[] = {{L, -0.50, -0.60}, {C, -0.10, -1.00}, {C, 0.40, -0.80},
                                          {C, 0.40, -0.30},  {C, 0.00, 0.40},   {C, -0.40, 0.85},
                                          {C, -0.58, 0.65},  {C, -0.35, 0.50},  {C, 0.00, 0.80},
                                          {C, 0.35, 0.98},   {C, 0.65, 0.75}};
inline constexpr GlyphPoint kTwoSwan[] = {{L, -0.45, -0.85}, {C, 0.10, -1.00}, {C, 0.45, -0.70},
                                          {C, 0.30, -0.15},  {K, -0.50, 0.85}, {C, 0.05, 0.80},
                                          {C, 0.55, 0.95}};

inline constexpr GlyphPoint kThreeRound[] = {
    {L, -0.50, -0.75}, {C, -0.10, -1.00}, {C, 0.40, -0.75}, {C, 0.30, -0.25}, {K, -0.10, -0.05},
    {C, 0.40, 0.15},   {C, 0.50, 0.60},   {C, 0.10, 0.98},  {C, -0.35, 0.90}, {C, -0.55, 0.65}};
inline constexpr GlyphPoint kThreeFlat[] = {{L, -0.50, -0.95}, {K, 0.45, -0.95}, {K, -0.05, -0.15},
                                            {C, 0.40, 0.05},   {C, 0.50, 0.55},  {C, 0.10, 0.95},
                                            {C, -0.50, 0.80}};
inline constexpr GlyphPoint kThreeCurl[] = {
    {L, -0.45, -0.85}, {C, 0.00, -1.00}, {C, 0.38, -0.70}, {C, 0.20, -0.25}, {C, -0.15, -0.10},
    {C, -0.12, 0.04},  {C, 0.15, -0.02}, {C, 0.48, 0.35},  {C, 0.20, 0.90},  {C, -0.50, 0.85}};

inline constexpr GlyphPoint kFourOpen[] = {{L, -0.45, -0.90}, {C, -0.55, -0.30}, {K, -0.50, 0.05},
                                           {C, 0.60, 0.00},   {L, 0.35, -0.95},  {C, 0.30, 0.00},
                                           {C, 0.22, 1.00}};
inline constexpr GlyphPoint kFourClosed[] = {
    {L, 0.25, -1.00}, {K, -0.60, 0.30}, {C, 0.65, 0.30}, {L, 0.25, -1.00}, {C, 0.25, 1.00}};
inline constexpr GlyphPoint kFourSwung[] = {{L, -0.40, -0.85}, {C, -0.50, -0.20}, {C, -0.20, 0.05},
                                            {C, 0.30, -0.15},  {K, 0.45, -0.90},  {C, 0.35, 0.00},
                                            {C, 0.20, 1.00}};

inline constexpr GlyphPoint kFivePlain[] = {{L, 0.50, -0.95}, {K, -0.35, -0.95}, {K, -0.45, -0.15},
                                            {C, 0.05, -0.30}, {C, 0.50, 0.10},   {C, 0.45, 0.65},
                                            {C, 0.00, 0.98},  {C, -0.50, 0.80}};
inline constexpr GlyphPoint kFiveHat[] = {{L, -0.30, -0.90}, {K, -0.40, -0.10}, {C, 0.10, -0.20},
                                          {C, 0.45, 0.25},   {C, 0.30, 0.80},   {C, -0.15, 1.00},
                                          {C, -0.50, 0.80},  {L, -0.30, -0.90}, {C, 0.50, -0.98}};
inline constexpr GlyphPoint kFiveCurved[] = {{L, 0.50, -0.90},  {C, 0.00, -0.95}, {C, -0.40, -0.60},
                                             {C, -0.20, -0.20}, {C, 0.30, 0.10},  {C, 0.40, 0.60},
                                             {C, 0.00, 0.95},   {C, -0.45, 0.80}};

inline constexpr GlyphPoint kSixRound[] = {{L, 0.30, -1.00}, {C, -0.20, -0.60}, {C, -0.50, 0.10},
                                           {C, -0.40, 0.75}, {C, 0.00, 1.00},   {C, 0.45, 0.70},
                                           {C, 0.40, 0.20},  {C, 0.00, 0.05},   {C, -0.40, 0.40}};
inline constexpr GlyphPoint kSixStraight[] = {{L, 0.10, -1.00}, {C, -0.30, -0.30}, {C, -0.45, 0.45},
                                              {C, -0.15, 0.95}, {C, 0.30, 0.85},   {C, 0.45, 0.45},
                                              {C, 0.10, 0.15},  {C, -0.35, 0.45}};
inline constexpr GlyphPoint kSixHook[] = {{L, 0.50, -0.75}, {C, 0.15, -1.00}, {C, -0.30, -0.60},
                                          {C, -0.50, 0.20}, {C, -0.20, 0.90}, {C, 0.30, 0.90},
                                          {C, 0.50, 0.45},  {C, 0.10, 0.05},  {C, -0.40, 0.30}};

inline constexpr GlyphPoint kSevenPlain[] = {
    {L, -0.55, -0.85}, {K, 0.50, -0.90}, {C, 0.15, 0.00}, {C, -0.10, 1.00}};
inline constexpr GlyphPoint kSevenCrossed[] = {{L, -0.55, -0.88}, {K, 0.50, -0.90},
                                               {C, 0.10, 0.00},   {C, -0.15, 1.00},
                                               {L, -0.35, 0.05},  {C, 0.45, 0.00}};
inline constexpr GlyphPoint kSevenSerif[] = {
    {L, -0.57, -0.55}, {K, -0.50, -0.90}, {K, 0.50, -0.85}, {C, 0.00, 0.10}, {C, -0.15, 1.00}};
inline constexpr GlyphPoint kSevenRound[] = {{L, -0.50, -0.70}, {C, -0.10, -0.95}, {C, 0.40, -0.80},
                                             {C, 0.35, -0.30},  {C, 0.10, 0.30},   {C, 0.05, 1.00}};

inline constexpr GlyphPoint kEightSwing[] = {{L, 0.40, -0.75},  {C, 0.00, -1.00}, {C, -0.40, -0.70},
                                             {C, -0.25, -0.25}, {C, 0.25, 0.15},  {C, 0.45, 0.60},
                                             {C, 0.00, 1.00},   {C, -0.45, 0.60}, {C, -0.20, 0.15},
                                             {C, 0.25, -0.25},  {C, 0.42, -0.65}, {C, 0.15, -0.98}};
inline constexpr GlyphPoint kEightRings[] = {
    {L, 0.00, -0.05}, {C, -0.38, -0.28}, {C, -0.38, -0.75}, {C, 0.00, -1.00}, {C, 0.38, -0.75},
    {C, 0.38, -0.28}, {C, 0.00, -0.05},  {L, 0.00, -0.05},  {C, 0.42, 0.22},  {C, 0.48, 0.65},
    {C, 0.00, 1.00},  {C, -0.48, 0.65},  {C, -0.42, 0.22},  {C, 0.00, -0.05}};
inline constexpr GlyphPoint kEightSlim[] = {
    {L, 0.30, -0.90}, {C, -0.20, -0.90}, {C, -0.28, -0.50}, {C, 0.00, -0.05}, {C, 0.28, 0.45},
    {C, 0.15, 0.95},  {C, -0.22, 0.90},  {C, -0.25, 0.45},  {C, 0.10, -0.05}, {C, 0.45, -0.75}};

inline constexpr GlyphPoint kNineStraight[] = {
    {L, 0.40, -0.60}, {C, 0.10, -0.98}, {C, -0.40, -0.75}, {C, -0.40, -0.25}, {C, 0.00, -0.05},
    {C, 0.36, -0.40}, {K, 0.42, -0.80}, {C, 0.40, 0.00},   {C, 0.30, 1.00}};
inline constexpr GlyphPoint kNineHook[] = {{L, 0.42, -0.70},  {C, 0.05, -1.00}, {C, -0.42, -0.70},
                                           {C, -0.32, -0.20}, {C, 0.10, -0.10}, {K, 0.45, -0.75},
                                           {C, 0.48, 0.20},   {C, 0.20, 0.90},  {C, -0.35, 0.90}};
inline constexpr GlyphPoint kNineSwung[] = {{L, 0.40, -0.80},  {C, 0.05, -1.00}, {C, -0.40, -0.75},
                                            {C, -0.45, -0.35}, {C, 0.00, -0.05}, {C, 0.35, -0.40},
                                            {C, 0.42, -0.55},  {C, 0.30, 0.20},  {C, 0.00, 1.00}};

inline constexpr Glyph kZero[] = {kZeroOval, kZeroOpen, kZeroRound};
inline constexpr Glyph kOne[] = {kOneBar, kOneFlag, kOneBase, kOneBar};  // the bar is commonest
inline constexpr Glyph kTwo[] = {kTwoPlain, kTwoLoop, kTwoSwan};
inline constexpr Glyph kThree[] = {kThreeRound, kThreeFlat, kThreeCurl};
inline constexpr Glyph kFour[] = {kFourOpen, kFourClosed, kFourSwung};
inline constexpr Glyph kFive[] = {kFivePlain, kFiveHat, kFiveCurved};
inline constexpr Glyph kSix[] = {kSixRound, kSixStraight, kSixHook};
inline constexpr Glyph kSeven[] = {kSevenPlain, kSevenCrossed, kSevenSerif, kSevenRound};
inline constexpr Glyph kEight[] = {kEightSwing, kEightRings, kEightSlim};
inline constexpr Glyph kNine[] = {kNineStraight, kNineHook, kNineSwung};

/// Styles of each digit; each style has the same probability.
inline constexpr std::array<std::span<const Glyph>, 10> kStyles = {
    kZero, kOne, kTwo, kThree, kFour, kFive, kSix, kSeven, kEight, kNine};

}  // namespace halfscope::glyphs
