/* Four taps of a picture per position, blended, and the derivative in the map: `native.py` calls it.

Equal to `taps.py`, which has the formulas. A row of positions is computed in blocks, which compilers
turn into vector instructions; then each pixel is read where its position says. float32 throughout;
pictures (count, height, width, channels), maps of 6 numbers, in pixels from the middle. Maps that
leave x and y apart, those of crops, are computed by lines: columns are located once. */

#include <Python.h>

#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
/* The processor's widest vectors, chosen when the library is loaded. */
#define EXPORT __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EXPORT
#endif

enum { BLOCK = 16, LINE = 256 };

/* Four numbers from any address: the three of a colour and one that does not count. */
typedef float lanes __attribute__((vector_size(16), aligned(4), may_alias));

typedef struct {
  int64_t count, height, width, channels, border;
} shape;

/* A block of positions: left upper tap, where between the taps, whether all four can be read, or none
   is in the picture; moves is 0 where a position is held, 1 elsewhere. */
typedef struct {
  int32_t column[BLOCK], row[BLOCK], first[BLOCK], inside[BLOCK], away[BLOCK];
  float right[BLOCK], below[BLOCK], moves_x[BLOCK], moves_y[BLOCK];
} block;

INLINE float hold(float position, float low, float high) {
  position = position < low ? low : position;
  return position > high ? high : position;
}

/* Positions of the pixels from `u` on in row `v`; returns whether all of them are inside. */
INLINE int locate(block *at, const float *map, int32_t u, int32_t v, const shape *s, int32_t last,
                  int channels) {
  const int32_t width = s->width, height = s->height;
  const float low = s->border ? 0.0f : -2.0f;
  const float high_x = s->border ? width - 1.0f : width + 1.0f;
  const float high_y = s->border ? height - 1.0f : height + 1.0f;
  const float middle_x = (width - 1) / 2.0f, middle_y = (height - 1) / 2.0f;
  const float across = map[1] * (v - middle_y) + map[2], down = map[4] * (v - middle_y) + map[5];
  int32_t inside = 0;
  for (int n = 0; n < BLOCK; n++) {
    const float x = map[0] * (u + n - middle_x) + across + middle_x;
    const float y = map[3] * (u + n - middle_x) + down + middle_y;
    const float held_x = hold(x, low, high_x), held_y = hold(y, low, high_y);
    /* NaN has no tap; its distance from one is NaN again. */
    const int32_t i = (int32_t)((held_x == held_x ? held_x : high_x) + 2.0f) - 2;
    const int32_t j = (int32_t)((held_y == held_y ? held_y : high_y) + 2.0f) - 2;
    at->column[n] = i, at->row[n] = j, at->first[n] = (j * width + i) * channels;
    at->right[n] = held_x - i, at->below[n] = held_y - j;
    at->moves_x[n] = (x > low) & (x < high_x), at->moves_y[n] = (y > low) & (y < high_y);
    at->inside[n] = (i >= 0) & (i < width - 1) & (j >= 0) & (j <= last);
    at->away[n] = (i < -1) | (i >= width) | (j < -1) | (j >= height);
    inside += at->inside[n];
  }
  return inside == BLOCK;
}

/* The last row of taps that may be read four numbers at a time: none beyond the last picture. */
INLINE int32_t last_row(const shape *s, int64_t picture, int channels) {
  return s->height - 2 - (channels == 3 && picture == s->count - 1);
}

/* Taps at the edge of the picture: those outside count as nothing. */
typedef struct {
  const float *tap[4];
  float weight[4];
} edge;

INLINE int32_t nearest(int32_t i, int32_t size) { return i < 0 ? 0 : i < size ? i : size - 1; }

INLINE edge at_edge(const block *at, int n, const float *picture, const shape *s, int channels) {
  edge found;
  for (int k = 0; k < 4; k++) {
    const int32_t i = at->column[n] + k % 2, j = at->row[n] + k / 2;
    const int32_t i_in = nearest(i, s->width), j_in = nearest(j, s->height);
    found.tap[k] = picture + (j_in * s->width + i_in) * channels;
    found.weight[k] = i == i_in && j == j_in;
  }
  return found;
}

/* One coordinate of a line of output pixels, where x and y are not mixed: its two taps, held in the
   picture; 1 for those in it; their weights; 0 where the position is held, 1 elsewhere. */
typedef struct {
  int32_t tap[2][LINE];
  float in[2][LINE], weight[2][LINE], moves[LINE];
} line;

INLINE int32_t locate_line(line *at, float slope, float offset, int32_t start, int32_t size,
                           int64_t border) {
  const int32_t count = size - start < LINE ? size - start : LINE;
  const float low = border ? 0.0f : -2.0f, high = border ? size - 1.0f : size + 1.0f;
  const float middle = (size - 1) / 2.0f;
  for (int32_t n = 0; n < count; n++) {
    const float x = slope * (start + n - middle) + offset + middle, held = hold(x, low, high);
    const int32_t i = (int32_t)(held + 2.0f) - 2;
    const float part = held - i;
    at->tap[0][n] = nearest(i, size), at->tap[1][n] = nearest(i + 1, size);
    at->in[0][n] = (i >= 0) & (i < size), at->in[1][n] = (i >= -1) & (i < size - 1);
    at->weight[0][n] = at->in[0][n] * (1 - part), at->weight[1][n] = at->in[1][n] * part;
    at->moves[n] = (x > low) & (x < high);
  }
  return count;
}

/* Whether a map, as that of a crop, leaves x and y apart; none with NaN, which has no taps. */
INLINE int apart(const float *map) {
  const float sum = map[0] + map[2] + map[4] + map[5];
  return map[1] == 0 && map[3] == 0 && sum == sum;
}

INLINE lanes colour(const float *p, int wide) {
  lanes found = {0};
  if (wide)
    found = *(const lanes *)p;
  else
    memcpy(&found, p, 3 * sizeof(float));
  return found;
}

INLINE lanes four(const float *p, const int32_t *tap) {
  return (lanes){p[tap[0]], p[tap[1]], p[tap[2]], p[tap[3]]};
}

/* Blend a line of pixels from two rows of a picture, p and q, weighed by above and below. */
INLINE void blend_line(const line *at, int32_t count, const float *p, const float *q, float above,
                       float below, float *out, int wide, int channels) {
  const float *left = at->weight[0], *right = at->weight[1];
  const int32_t *i = at->tap[0], *j = at->tap[1];
  int32_t n = 0;
  if (channels == 1)
    for (; n + 4 <= count; n += 4)
      *(lanes *)(out + n) =
          *(const lanes *)(left + n) * (above * four(p, i + n) + below * four(q, i + n)) +
          *(const lanes *)(right + n) * (above * four(p, j + n) + below * four(q, j + n));
  for (; n < count; n++)
    if (channels == 3) {
      const lanes sum =
          left[n] * (above * colour(p + 3 * i[n], wide) + below * colour(q + 3 * i[n], wide)) +
          right[n] * (above * colour(p + 3 * j[n], wide) + below * colour(q + 3 * j[n], wide));
      if (n < count - 1) /* into the next pixel, which comes next */
        *(lanes *)(out + 3 * n) = sum;
      else
        memcpy(out + 3 * n, &sum, 3 * sizeof(float));
    } else
      for (int c = 0; c < channels; c++) {
        const int32_t a = i[n] * channels + c, b = j[n] * channels + c;
        out[n * channels + c] = left[n] * (above * p[a] + below * q[a]) +
                                right[n] * (above * p[b] + below * q[b]);
      }
}

INLINE void blend_apart(const float *picture, const float *map, float *out, const shape *s, int ends,
                        int channels) {
  const int32_t width = s->width, height = s->height;
  line across, down;
  for (int32_t u = 0; u < width; u += LINE) {
    const int32_t columns = locate_line(&across, map[0], map[2], u, width, s->border);
    for (int32_t v = 0; v < height; v += LINE) {
      const int32_t rows = locate_line(&down, map[4], map[5], v, height, s->border);
      for (int32_t m = 0; m < rows; m++) {
        const float *p = picture + down.tap[0][m] * width * channels;
        const float *q = picture + down.tap[1][m] * width * channels;
        float *o = out + ((v + m) * width + u) * channels;
        const float above = down.weight[0][m], below = down.weight[1][m];
        if (ends && down.tap[1][m] == height - 1) /* no four numbers at its last pixel */
          blend_line(&across, columns, p, q, above, below, o, 0, channels);
        else
          blend_line(&across, columns, p, q, above, below, o, 1, channels);
      }
    }
  }
}

INLINE void blend_one(const block *at, int n, const float *picture, float *out, const shape *s,
                      int wide, int channels) {
  const float r = at->right[n], b = at->below[n];
  const float w00 = (1 - b) * (1 - r), w01 = (1 - b) * r, w10 = b * (1 - r), w11 = b * r;
  if (at->inside[n]) {
    const float *p = picture + at->first[n], *q = p + s->width * channels;
    if (channels == 3) {
      const lanes sum = w00 * *(const lanes *)p + w01 * *(const lanes *)(p + 3) +
                        w10 * *(const lanes *)q + w11 * *(const lanes *)(q + 3);
      if (wide) /* into the next pixel, which comes next */
        *(lanes *)out = sum;
      else
        memcpy(out, &sum, 3 * sizeof(float));
    } else
      for (int c = 0; c < channels; c++)
        out[c] = w00 * p[c] + w01 * p[channels + c] + w10 * q[c] + w11 * q[channels + c];
  } else if (at->away[n])
    for (int c = 0; c < channels; c++) out[c] = 0 * w00; /* NaN stays NaN */
  else {
    const edge e = at_edge(at, n, picture, s, channels);
    for (int c = 0; c < channels; c++)
      out[c] = w00 * e.weight[0] * e.tap[0][c] + w01 * e.weight[1] * e.tap[1][c] +
               w10 * e.weight[2] * e.tap[2][c] + w11 * e.weight[3] * e.tap[3][c];
  }
}

INLINE void blend(const float *pictures, const float *maps, float *out, const shape *s,
                  int64_t start, int64_t end, int channels) {
  const int32_t width = s->width;
  for (int64_t k = start; k < end; k++) {
    const int32_t last = last_row(s, k % s->count, channels);
    const float *picture = pictures + k % s->count * s->height * width * channels;
    float *o = out + k * s->height * width * channels;
    if (apart(maps + 6 * k)) {
      blend_apart(picture, maps + 6 * k, o, s, k % s->count == s->count - 1, channels);
      continue;
    }
    for (int32_t v = 0; v < s->height; v++)
      for (int32_t u = 0; u < width; u += BLOCK) {
        block at;
        if (locate(&at, maps + 6 * k, u, v, s, last, channels) && u + BLOCK <= width)
          for (int n = 0; n < BLOCK; n++, o += channels) {
            at.inside[n] = 1; /* as is known here, so that nothing is asked */
            blend_one(&at, n, picture, o, s, n < BLOCK - 1, channels);
          }
        else
          for (int n = 0; n < BLOCK && u + n < width; n++, o += channels)
            blend_one(&at, n, picture, o, s, 0, channels);
      }
  }
}

/* Sums over the pixels of a row, lane by lane: of dx, u dx, dy and u dy. */
typedef struct {
  lanes x, ux, y, uy;
} sums;

/* Of colours the fourth does not count. */
INLINE float all(lanes sum, int channels) {
  return sum[0] + sum[1] + sum[2] + (channels == 3 ? 0 : sum[3]);
}

/* Add those of row t, counted from the middle, to the derivative in the 6 numbers of a map. */
INLINE void add_row(double *whole, const sums *row, float t, int channels) {
  const float x = all(row->x, channels), y = all(row->y, channels);
  whole[0] += all(row->ux, channels), whole[1] += t * x, whole[2] += x;
  whole[3] += all(row->uy, channels), whole[4] += t * y, whole[5] += y;
}

/* Add the derivative in its position, dx and dy, of one pixel times its weights g. */
INLINE void slope_one(const block *at, int n, const float *picture, const float *g, const shape *s,
                      float u, int wide, int channels, sums *row) {
  const float r = at->right[n], b = at->below[n];
  lanes dx = {0}, dy = {0};
  if (at->away[n]) return;
  if (at->inside[n]) {
    const float *p = picture + at->first[n], *q = p + s->width * channels;
    if (channels == 3) {
      lanes weight = {0};
      if (wide)
        weight = *(const lanes *)g;
      else
        memcpy(&weight, g, 3 * sizeof(float));
      const lanes p0 = *(const lanes *)p, p1 = *(const lanes *)(p + 3);
      const lanes q0 = *(const lanes *)q, q1 = *(const lanes *)(q + 3);
      dx = weight * ((1 - b) * (p1 - p0) + b * (q1 - q0));
      dy = weight * ((1 - r) * (q0 - p0) + r * (q1 - p1));
    } else
      for (int c = 0; c < channels; c++) {
        const float p0 = p[c], p1 = p[channels + c], q0 = q[c], q1 = q[channels + c];
        dx[0] += g[c] * ((1 - b) * (p1 - p0) + b * (q1 - q0));
        dy[0] += g[c] * ((1 - r) * (q0 - p0) + r * (q1 - p1));
      }
  } else {
    const edge e = at_edge(at, n, picture, s, channels);
    for (int c = 0; c < channels; c++) {
      const float p0 = e.weight[0] * e.tap[0][c], p1 = e.weight[1] * e.tap[1][c];
      const float q0 = e.weight[2] * e.tap[2][c], q1 = e.weight[3] * e.tap[3][c];
      dx[0] += g[c] * ((1 - b) * (p1 - p0) + b * (q1 - q0));
      dy[0] += g[c] * ((1 - r) * (q0 - p0) + r * (q1 - p1));
    }
  }
  dx *= at->moves_x[n], dy *= at->moves_y[n];
  row->x += dx, row->ux += u * dx, row->y += dy, row->uy += u * dy;
}

/* As slope_one, of a line of pixels between two rows p and q. */
INLINE void slope_line(const line *at, int32_t count, const float *p, const float *q,
                       const line *down, int32_t m, const float *g, float u, int wide, int channels,
                       sums *row) {
  const float above = down->weight[0][m], below = down->weight[1][m];
  const float top = down->in[0][m], bottom = down->in[1][m];
  const float *left = at->weight[0], *right = at->weight[1];
  const float *in_left = at->in[0], *in_right = at->in[1];
  const int32_t *i = at->tap[0], *j = at->tap[1];
  int32_t n = 0;
  if (channels == 1)
    for (; n + 4 <= count; n += 4) {
      const lanes p0 = four(p, i + n), p1 = four(p, j + n), q0 = four(q, i + n), q1 = four(q, j + n);
      const lanes weight = *(const lanes *)(g + n);
      const lanes dx = weight * *(const lanes *)(at->moves + n) *
                       (*(const lanes *)(in_right + n) * (above * p1 + below * q1) -
                        *(const lanes *)(in_left + n) * (above * p0 + below * q0));
      const lanes dy = weight * (*(const lanes *)(left + n) * (bottom * q0 - top * p0) +
                                 *(const lanes *)(right + n) * (bottom * q1 - top * p1));
      const lanes place = {u + n, u + n + 1, u + n + 2, u + n + 3};
      row->x += dx, row->ux += place * dx, row->y += dy, row->uy += place * dy;
    }
  for (; n < count; n++) {
    lanes dx = {0}, dy = {0};
    if (channels == 3) {
      const lanes p0 = colour(p + 3 * i[n], wide), p1 = colour(p + 3 * j[n], wide);
      const lanes q0 = colour(q + 3 * i[n], wide), q1 = colour(q + 3 * j[n], wide);
      const lanes weight = colour(g + 3 * n, n < count - 1);
      dx = weight * (in_right[n] * (above * p1 + below * q1) -
                     in_left[n] * (above * p0 + below * q0));
      dy = weight * (left[n] * (bottom * q0 - top * p0) + right[n] * (bottom * q1 - top * p1));
    } else
      for (int c = 0; c < channels; c++) {
        const int32_t a = i[n] * channels + c, b = j[n] * channels + c;
        const float weight = g[n * channels + c];
        dx[0] += weight * (in_right[n] * (above * p[b] + below * q[b]) -
                           in_left[n] * (above * p[a] + below * q[a]));
        dy[0] += weight * (left[n] * (bottom * q[a] - top * p[a]) +
                           right[n] * (bottom * q[b] - top * p[b]));
      }
    dx *= at->moves[n];
    row->x += dx, row->ux += (u + n) * dx, row->y += dy, row->uy += (u + n) * dy;
  }
}

INLINE void slopes_apart(const float *picture, const float *map, const float *weights, double *whole,
                         const shape *s, int ends, int channels) {
  const int32_t width = s->width, height = s->height;
  line across, down;
  for (int32_t u = 0; u < width; u += LINE) {
    const int32_t columns = locate_line(&across, map[0], map[2], u, width, s->border);
    for (int32_t v = 0; v < height; v += LINE) {
      const int32_t rows = locate_line(&down, map[4], map[5], v, height, s->border);
      for (int32_t m = 0; m < rows; m++) {
        sums row = {0};
        const float *p = picture + down.tap[0][m] * width * channels;
        const float *q = picture + down.tap[1][m] * width * channels;
        const float *g = weights + ((v + m) * width + u) * channels;
        const float from = u - (width - 1) / 2.0f, moves = down.moves[m];
        if (ends && down.tap[1][m] == height - 1)
          slope_line(&across, columns, p, q, &down, m, g, from, 0, channels, &row);
        else
          slope_line(&across, columns, p, q, &down, m, g, from, 1, channels, &row);
        row.y *= moves, row.uy *= moves;
        add_row(whole, &row, v + m - (height - 1) / 2.0f, channels);
      }
    }
  }
}

INLINE void slopes(const float *pictures, const float *maps, const float *weights, float *found,
                   const shape *s, int64_t start, int64_t end, int channels) {
  const int32_t width = s->width;
  const float middle_x = (width - 1) / 2.0f, middle_y = (s->height - 1) / 2.0f;
  for (int64_t k = start; k < end; k++) {
    const int32_t last = last_row(s, k % s->count, channels);
    const float *picture = pictures + k % s->count * s->height * width * channels;
    const float *g = weights + k * s->height * width * channels;
    double whole[6] = {0};
    if (apart(maps + 6 * k))
      slopes_apart(picture, maps + 6 * k, g, whole, s, k % s->count == s->count - 1, channels);
    else
      for (int32_t v = 0; v < s->height; v++) {
        sums row = {0};
        for (int32_t u = 0; u < width; u += BLOCK) {
          block at;
          if (locate(&at, maps + 6 * k, u, v, s, last, channels) && u + BLOCK <= width)
            for (int n = 0; n < BLOCK; n++, g += channels) {
              at.inside[n] = 1, at.away[n] = 0;
              slope_one(&at, n, picture, g, s, u + n - middle_x, n < BLOCK - 1, channels, &row);
            }
          else
            for (int n = 0; n < BLOCK && u + n < width; n++, g += channels)
              slope_one(&at, n, picture, g, s, u + n - middle_x, 0, channels, &row);
        }
        add_row(whole, &row, v - middle_y, channels);
      }
    for (int n = 0; n < 6; n++) found[6 * k + n] = whole[n];
  }
}

/* Maps from `start` to `end`; map k reads picture k modulo their count. */
EXPORT void flowjax_inv_blend(const float *pictures, const float *maps, float *out, const shape *s,
                              int64_t start, int64_t end) {
  switch (s->channels) {
    case 1: blend(pictures, maps, out, s, start, end, 1); break;
    case 3: blend(pictures, maps, out, s, start, end, 3); break;
    default: blend(pictures, maps, out, s, start, end, (int)s->channels);
  }
}

/* The derivative of sum(weights * out) in the 6 numbers of each map. */
EXPORT void flowjax_inv_slopes(const float *pictures, const float *maps, const float *weights,
                               float *found, const shape *s, int64_t start, int64_t end) {
  switch (s->channels) {
    case 1: slopes(pictures, maps, weights, found, s, start, end, 1); break;
    case 3: slopes(pictures, maps, weights, found, s, start, end, 3); break;
    default: slopes(pictures, maps, weights, found, s, start, end, (int)s->channels);
  }
}

/* A module of Python's, so that it is found as one; the functions are called by ctypes. */
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_taps", "Four taps of a picture per position: taps.c.", -1, NULL,
};

PyMODINIT_FUNC PyInit__taps(void) { return PyModule_Create(&module); }
