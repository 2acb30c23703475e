/* Four taps of a picture per position, blended, and the derivative in the map, for `warps.py`.

Equal to `taps.py`, which has the formulas. A line of positions is located in blocks, which compilers
turn into vector instructions; then each pixel is read where its position says. The two taps of a
coordinate are always neighbours in the picture, with weights that are 0 where a tap of `taps.py` lies
outside: no pixel takes a path of its own. float32 throughout; pictures (count, height, width,
channels), maps of 6 numbers, in pixels from the middle. Maps that leave x and y apart, those of
crops, locate a column once for all rows, and a row for all columns. */

#include "taps.h"

#include <string.h>

#ifndef __clang__
/* FMA, where there is one: its rounding is the same in vectors of any width. */
#pragma GCC optimize("fp-contract=fast")
#endif

#define INLINE static inline __attribute__((always_inline))
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
/* The processor's widest vectors, chosen when the library is loaded; and two neighbours of three
   colours in one of eight numbers. */
#define EXPORT __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define EIGHT 1
#else
#define EXPORT
#define EIGHT 0
#endif

enum { BLOCK = 16, LINE = 128 };

/* Four numbers from any address: the three of a colour and one that does not count, or four pixels. */
typedef float lanes __attribute__((vector_size(16), aligned(4), may_alias));
typedef float eight __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t order __attribute__((vector_size(16)));
#ifdef __clang__
#define PICK(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define PICK(a, b, i, j, k, l) __builtin_shuffle(a, b, (order){i, j, k, l})
#endif

/* A side of a picture: its middle, the last tap that has a next, where positions are held, 1 if there
   is more than one tap, 0, and the numbers from one to the next. Where compilers know of a zero, they
   compare and select; where not, it is one instruction, the maximum. */
typedef struct {
  float middle, last, low, high, more, zero;
  int32_t step;
} side;

/* One coordinate of a line of positions: the first of its two taps, in numbers; the weights of both,
   and how these change with the position. */
typedef struct {
  int32_t tap[LINE];
  float weight[2][LINE], slope[2][LINE];
} line;

INLINE side side_of(int32_t size, int32_t step, int64_t border) {
  const float end = size - 1.0f, margin = border ? 0 : 4; /* no tap has a weight there */
  const float last = size > 1 ? end - 1 : 0, zero = border * 0.0f;
  return (side){end / 2, last, -margin, end + margin, size > 1, zero, step};
}

/* The weight of a tap at a distance, of a height of 1, or 0 where there is none; NaN stays NaN. */
INLINE float tent(float distance, float height, float zero) {
  const float weight = height - __builtin_fabsf(distance);
  return weight < zero ? zero : weight;
}

/* Its slope; where it bends, that to the right. */
INLINE float slope_of_tent(float distance) {
  return ((distance >= -1) & (distance < 0)) - ((distance >= 0) & (distance < 1));
}

/* Locate slope * t + offset for t = start, start + 1, ...; both from the middles of their sides. */
INLINE void locate(line *at, float slope, float start, float offset, int32_t count, const side *of,
                   int slopes) {
  static const float next[BLOCK] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const side s = *of;
  for (int32_t m = 0; m < count; m += BLOCK)
    for (int32_t n = m; n < m + BLOCK; n++) {
      const float x = slope * (start + m + next[n - m]) + offset + s.middle;
      float held = x < s.low ? s.low : x;
      held = held > s.high ? s.high : held;
      float tap = held > s.zero ? held : s.zero; /* of NaN the first */
      tap = tap < s.last ? tap : s.last;
      const int32_t i = (int32_t)tap;
      at->tap[n] = i * s.step;
      at->weight[0][n] = tent(held - i, 1, s.zero);
      at->weight[1][n] = tent(held - i - 1, s.more, s.zero);
      if (slopes) {
        const float moves = (x > s.low) & (x < s.high);
        at->slope[0][n] = moves * slope_of_tent(held - i);
        at->slope[1][n] = moves * s.more * slope_of_tent(held - i - 1);
      }
    }
}

/* A line of pixels: where their first taps lie, and how far from them the next column and row; what
   is known of `across` for each, of `down` from `row` on, for each or (each = 0) for all. */
typedef struct {
  const float *picture;
  const line *across, *down;
  int32_t row, count, right, below;
} task;

INLINE lanes get(const float *p) { return *(const lanes *)p; }

INLINE lanes weigh(const float *p, int each) { return each ? get(p) : (lanes){*p, *p, *p, *p}; }

INLINE lanes colour(const float *p, int open) {
  lanes found = {0};
  if (open)
    found = get(p);
  else
    memcpy(&found, p, 3 * sizeof(float));
  return found;
}

/* Two neighbours each of four grey pixels: those on the left, those on the right. */
INLINE void pairs(const float *p, const int32_t *tap, lanes *left, lanes *right) {
  typedef double two __attribute__((vector_size(16)));
  double both[4];
  for (int k = 0; k < 4; k++) memcpy(both + k, p + tap[k], sizeof(double));
  const lanes a = (lanes)(two){both[0], both[1]}, b = (lanes)(two){both[2], both[3]};
  *left = PICK(a, b, 0, 2, 4, 6), *right = PICK(a, b, 1, 3, 5, 7);
}

/* Two neighbours of one colour, each a weighed sum of two rows. */
INLINE void rows(const float *p, const float *q, float above, float below, lanes *left,
                 lanes *right) {
  const eight both = above * *(const eight *)p + below * *(const eight *)q;
  *left = (lanes){both[0], both[1], both[2], both[3]};
  *right = (lanes){both[3], both[4], both[5], both[6]};
}

/* Blend a line of pixels. `open`: more than three numbers may be read where a colour lies. */
INLINE void blend_line(const task *of, float *out, int each, int open, int channels) {
  const float *left = of->across->weight[0], *right = of->across->weight[1];
  const float *above = of->down->weight[0] + of->row, *below = of->down->weight[1] + of->row;
  const float *p = of->picture, *q = p + of->below;
  const int32_t *tap = of->across->tap;
  int32_t n = 0;
  if (channels == 1)
    for (; n + 4 <= of->count; n += 4) {
      const lanes a = weigh(above + n * each, each), b = weigh(below + n * each, each);
      lanes p0, p1, q0, q1;
      pairs(p, tap + n, &p0, &p1), pairs(q, tap + n, &q0, &q1);
      *(lanes *)(out + n) = get(left + n) * (a * p0 + b * q0) + get(right + n) * (a * p1 + b * q1);
    }
  for (; n < of->count; n++) {
    const float l = left[n], r = right[n], a = above[n * each], b = below[n * each];
    const int32_t i = tap[n], j = i + of->right;
    if (channels == 3) {
      lanes first, second;
      if (open && EIGHT)
        rows(p + i, q + i, a, b, &first, &second);
      else {
        first = a * colour(p + i, open) + b * colour(q + i, open);
        second = a * colour(p + j, open) + b * colour(q + j, open);
      }
      const lanes sum = l * first + r * second;
      if (n < of->count - 1) /* into the next pixel, which comes next */
        *(lanes *)(out + 3 * n) = sum;
      else
        memcpy(out + 3 * n, &sum, 3 * sizeof(float));
    } else
      for (int c = 0; c < channels; c++)
        out[n * channels + c] =
            l * (a * p[i + c] + b * q[i + c]) + r * (a * p[j + c] + b * q[j + c]);
  }
}

/* Of colours the fourth does not count. */
INLINE float all(lanes sum, int channels) {
  return sum[0] + sum[1] + sum[2] + (channels == 3 ? 0 : sum[3]);
}

/* Add to the derivative in a map what a line adds whose pixels weigh g: row v, columns from u on. */
INLINE void slope_line(const task *of, const float *g, float u, float v, double *found, int each,
                       int open, int channels) {
  const float *left = of->across->weight[0], *right = of->across->weight[1];
  const float *d_left = of->across->slope[0], *d_right = of->across->slope[1];
  const float *above = of->down->weight[0] + of->row, *below = of->down->weight[1] + of->row;
  const float *d_above = of->down->slope[0] + of->row, *d_below = of->down->slope[1] + of->row;
  const float *p = of->picture, *q = p + of->below;
  const int32_t *tap = of->across->tap;
  lanes sum_x = {0}, sum_ux = {0}, sum_y = {0}, sum_uy = {0}, at = u + (lanes){0, 1, 2, 3};
  int32_t n = 0;
  if (channels == 1)
    for (; n + 4 <= of->count; n += 4, at += 4) {
      const lanes a = weigh(above + n * each, each), b = weigh(below + n * each, each);
      const lanes d_a = weigh(d_above + n * each, each), d_b = weigh(d_below + n * each, each);
      lanes p0, p1, q0, q1;
      pairs(p, tap + n, &p0, &p1), pairs(q, tap + n, &q0, &q1);
      const lanes dx = get(g + n) * (get(d_left + n) * (a * p0 + b * q0) +
                                     get(d_right + n) * (a * p1 + b * q1));
      const lanes dy = get(g + n) * (get(left + n) * (d_a * p0 + d_b * q0) +
                                     get(right + n) * (d_a * p1 + d_b * q1));
      sum_x += dx, sum_ux += at * dx, sum_y += dy, sum_uy += at * dy;
    }
  at = u + n + (lanes){0};
  for (; n < of->count; n++, at += 1) {
    const float l = left[n], r = right[n], a = above[n * each], b = below[n * each];
    const float d_l = d_left[n], d_r = d_right[n], d_a = d_above[n * each], d_b = d_below[n * each];
    const int32_t i = tap[n], j = i + of->right;
    lanes dx = {0}, dy = {0};
    if (channels == 3) {
      const lanes weight = colour(g + 3 * n, n < of->count - 1);
      lanes x0, x1, y0, y1;
      if (open && EIGHT)
        rows(p + i, q + i, a, b, &x0, &x1), rows(p + i, q + i, d_a, d_b, &y0, &y1);
      else {
        const lanes p0 = colour(p + i, open), p1 = colour(p + j, open);
        const lanes q0 = colour(q + i, open), q1 = colour(q + j, open);
        x0 = a * p0 + b * q0, x1 = a * p1 + b * q1;
        y0 = d_a * p0 + d_b * q0, y1 = d_a * p1 + d_b * q1;
      }
      dx = weight * (d_l * x0 + d_r * x1), dy = weight * (l * y0 + r * y1);
    } else
      for (int c = 0; c < channels; c++) {
        const float p0 = p[i + c], p1 = p[j + c], q0 = q[i + c], q1 = q[j + c];
        const float weight = g[n * channels + c];
        dx[0] += weight * (d_l * (a * p0 + b * q0) + d_r * (a * p1 + b * q1));
        dy[0] += weight * (l * (d_a * p0 + d_b * q0) + r * (d_a * p1 + d_b * q1));
      }
    sum_x += dx, sum_ux += at * dx, sum_y += dy, sum_uy += at * dy;
  }
  const float x = all(sum_x, channels), y = all(sum_y, channels);
  found[0] += all(sum_ux, channels), found[1] += v * x, found[2] += x;
  found[3] += all(sum_uy, channels), found[4] += v * y, found[5] += y;
}

INLINE int32_t at_most(int32_t a, int32_t b) { return a < b ? a : b; }

/* Apply one map to its picture, or find the derivative in it. `last`: nothing may be read behind. */
INLINE void work_map(const float *picture, const float *map, const float *g, float *out,
                     double *found, const shape *s, int last, int slopes, int channels) {
  const int32_t width = s->width, height = s->height, row = width * channels;
  const side wide = side_of(width, channels, s->border), high = side_of(height, row, s->border);
  const int apart = map[1] == 0 && map[3] == 0;
  line across, down;
  task of = {picture, &across, &down, 0, 0, width > 1 ? channels : 0, height > 1 ? row : 0};
  for (int32_t first = 0; first < width; first += LINE) {
    const float u = first - wide.middle;
    of.count = at_most(width - first, LINE);
    if (apart) locate(&across, map[0], u, map[2], of.count, &wide, slopes);
    for (int32_t k = 0; k < height; k++) {
      const float v = k - high.middle;
      int32_t lowest; /* tap of the line */
      if (apart) {
        of.row = k % LINE;
        if (of.row == 0) locate(&down, map[4], v, map[5], at_most(height - k, LINE), &high, slopes);
        lowest = down.tap[of.row];
        of.picture = picture + lowest;
      } else {
        locate(&across, map[0], u, map[1] * v + map[2], of.count, &wide, slopes);
        locate(&down, map[3], u, map[4] * v + map[5], of.count, &high, slopes);
        lowest = -at_most(-down.tap[0], -down.tap[of.count - 1]);
        for (int32_t m = 0; m < of.count; m += BLOCK)
          for (int32_t n = m; n < m + BLOCK; n++) across.tap[n] += down.tap[n];
      }
      const int open = width > 1 && (!last || lowest + 2 * row < height * row);
      const int64_t at = (int64_t)k * row + first * channels;
      /* Four times, so that nothing is asked for each pixel. */
      if (slopes) {
        if (open && apart) slope_line(&of, g + at, u, v, found, 0, 1, channels);
        if (open && !apart) slope_line(&of, g + at, u, v, found, 1, 1, channels);
        if (!open && apart) slope_line(&of, g + at, u, v, found, 0, 0, channels);
        if (!open && !apart) slope_line(&of, g + at, u, v, found, 1, 0, channels);
      } else {
        if (open && apart) blend_line(&of, out + at, 0, 1, channels);
        if (open && !apart) blend_line(&of, out + at, 1, 1, channels);
        if (!open && apart) blend_line(&of, out + at, 0, 0, channels);
        if (!open && !apart) blend_line(&of, out + at, 1, 0, channels);
      }
    }
  }
}

INLINE void blend(const float *pictures, const float *maps, float *out, const shape *s,
                  int64_t start, int64_t end, int channels) {
  const int64_t size = s->height * s->width * channels;
  for (int64_t k = start; k < end; k++) {
    const int64_t own = k % s->count;
    work_map(pictures + own * size, maps + 6 * k, NULL, out + k * size, NULL, s,
             own == s->count - 1, 0, channels);
  }
}

INLINE void slopes(const float *pictures, const float *maps, const float *weights, float *found,
                   const shape *s, int64_t start, int64_t end, int channels) {
  const int64_t size = s->height * s->width * channels;
  for (int64_t k = start; k < end; k++) {
    const int64_t own = k % s->count;
    double sum[6] = {0};
    work_map(pictures + own * size, maps + 6 * k, weights + k * size, NULL, sum, s,
             own == s->count - 1, 1, channels);
    for (int n = 0; n < 6; n++) found[6 * k + n] = sum[n];
  }
}

EXPORT void flowjax_inv_blend(const float *pictures, const float *maps, float *out, const shape *s,
                              int64_t start, int64_t end) {
  switch (s->channels) {
    case 1: blend(pictures, maps, out, s, start, end, 1); break;
    case 3: blend(pictures, maps, out, s, start, end, 3); break;
    default: blend(pictures, maps, out, s, start, end, (int)s->channels);
  }
}

EXPORT void flowjax_inv_slopes(const float *pictures, const float *maps, const float *weights,
                               float *found, const shape *s, int64_t start, int64_t end) {
  switch (s->channels) {
    case 1: slopes(pictures, maps, weights, found, s, start, end, 1); break;
    case 3: slopes(pictures, maps, weights, found, s, start, end, 3); break;
    default: slopes(pictures, maps, weights, found, s, start, end, (int)s->channels);
  }
}
