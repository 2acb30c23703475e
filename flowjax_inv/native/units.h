/* The parts of perceptron.c, for vectors of one size: it defines WIDTH, the numbers in a vector, and NAME,
   what makes names of this size. */

#include "vectors.h"

/* NaN stays NaN. */
INLINE vector NAME(relu)(vector x) { return (vector)((mask)x & ~(x < 0)); }

/* A row in every place: `count` from `row` on. Their images' units are as many numbers from `first`. */
INLINE void NAME(rows)(const layer *l, float *out, int64_t row, int64_t count, const int d) {
  const int kept = KEPT(d), outputs = OUTPUTS(d);
  const int64_t all = l->images * l->samples, image = row / l->samples, rest = row % l->samples;
  const int64_t last = l->line - WIDTH, first = image < last ? image : last;
  vector z[kept], sums[outputs];
  mask place;
  for (int x = 0; x < WIDTH; x++) place[x] = rest + x;
  /* Of few samples a vector has many images; of their quotient with a half no rounding is too large. */
  mask which = -(place >= (int32_t)l->samples);
  if (l->samples < WIDTH)
    which = __builtin_convertvector(
        (__builtin_convertvector(place, vector) + 0.5f) * (1.0f / l->samples), mask);
  which += (int32_t)(image - first);
  UNROLL for (int k = 0; k < kept; k++) {
    z[k] = ALL(0.0f);
    if (count == WIDTH)
      z[k] = OF(l->kept + k * all + row);
    else
      memcpy(z + k, l->kept + k * all + row, count * sizeof(float));
  }
  UNROLL for (int o = 0; o < outputs; o++) sums[o] = ALL(l->bias[o]);
  for (int64_t w = 0; w < l->width; w++) {
    vector h = PICK(OF(l->context + w * l->line + first), which);
    UNROLL for (int k = 0; k < kept; k++) h += l->first[k * l->width + w] * z[k];
    h = NAME(relu)(h);
    UNROLL for (int o = 0; o < outputs; o++) sums[o] += l->kernel[w * outputs + o] * h;
  }
  UNROLL for (int o = 0; o < outputs; o++)
    if (count == WIDTH)
      AT(out + o * all + row) = sums[o];
    else
      memcpy(out + o * all + row, sums + o, count * sizeof(float));
}

static void NAME(values)(const layer *l, float *out, int64_t row, int64_t end, const int d) {
  for (; row < end; row += WIDTH) {
    const int64_t count = end - row < WIDTH ? end - row : WIDTH;
    switch (d) { EACH(NAME(rows)(l, out, row, count, D)) }
  }
}

/* Some units of some rows: add to the derivatives what each gives. A unit in every place. */
INLINE void NAME(units)(const layer *l, const sums *s, const float *g, int64_t row, int64_t end,
                        int64_t unit, float *d_kept, const int d) {
  const int kept = KEPT(d), outputs = OUTPUTS(d);
  const int64_t all = l->images * l->samples;
  vector first[kept], kernel[outputs], d_first[kept], d_kernel[outputs];
  UNROLL for (int k = 0; k < kept; k++) {
    first[k] = OF(s->first + k * s->padded + unit);
    d_first[k] = OF(s->d_first + k * s->padded + unit);
  }
  UNROLL for (int o = 0; o < outputs; o++) {
    kernel[o] = OF(s->kernel + o * s->padded + unit);
    d_kernel[o] = OF(s->d_kernel + o * s->padded + unit);
  }
  while (row < end) {
    const int64_t image = row / l->samples, next = (image + 1) * l->samples;
    const int64_t at = (image - s->image) * s->padded + unit;
    const vector context = OF(s->context + at);
    vector d_context = OF(s->d_context + at);
    for (const int64_t until = next < end ? next : end; row < until; row++, d_kept += kept * LANES) {
      vector h = context, d_h = ALL(0.0f);
      UNROLL for (int k = 0; k < kept; k++) h += l->kept[k * all + row] * first[k];
      UNROLL for (int o = 0; o < outputs; o++) d_h += g[o * all + row] * kernel[o];
      d_h = (vector)((mask)d_h & (h > 0));
      h = NAME(relu)(h);
      d_context += d_h;
      UNROLL for (int k = 0; k < kept; k++) {
        d_first[k] += l->kept[k * all + row] * d_h;
        AT(d_kept + k * LANES) += first[k] * d_h;
      }
      UNROLL for (int o = 0; o < outputs; o++) d_kernel[o] += g[o * all + row] * h;
    }
    AT(s->d_context + at) = d_context;
  }
  UNROLL for (int k = 0; k < kept; k++) AT(s->d_first + k * s->padded + unit) = d_first[k];
  UNROLL for (int o = 0; o < outputs; o++) AT(s->d_kernel + o * s->padded + unit) = d_kernel[o];
}

static void NAME(slopes)(const layer *l, const sums *s, const float *g, int64_t row, int64_t end,
                         int64_t unit, float *d_kept, const int d) {
  switch (d) { EACH(NAME(units)(l, s, g, row, end, unit, d_kept, D)) }
}

#undef WIDTH
#undef NAME
