/* What a coupling asks of its conditioner, of one hidden layer, for all samples of all images:

       h = relu(first' z + context),   out = kernel' h + bias

   with z (K, N n), context (W, N), first (K, W), kernel (W, O): image after image, n samples of each.
   Hidden units stay in registers: nothing is kept for the derivatives, which compute them again. */

#include "foreign.h"

#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Of d coordinates. */
#define KEPT(d) (((d) + 1) / 2)
#define OUTPUTS(d) (2 * ((d) / 2))
#define EACH(WORK) \
  CASE(2, WORK) CASE(3, WORK) CASE(4, WORK) CASE(5, WORK) CASE(6, WORK) CASE(7, WORK) CASE(8, WORK)
#define CASE(d, WORK) \
  case d: {           \
    enum { D = d };   \
    WORK;             \
    break;            \
  }

enum { LANES = 16, ROWS = 64, PARTS = 8 };

typedef struct {
  const float *context, *first, *kept, *kernel, *bias;
  int64_t images, samples, width;
  int64_t line; /* from one unit's images to the next's, LANES at least */
} layer;

/* Of a part of the images, from `image` on. Units are filled up with zeros, to `padded`; context and its
   derivative are (images, units), kernel and its derivative (O, units). */
typedef struct {
  int64_t image, padded;
  float *first, *kernel, *d_first, *d_kernel, *d_bias, *context, *d_context, *d_kept;
} sums;

#if defined(__GNUC__) && !defined(__clang__)
#define UNROLL _Pragma("GCC unroll 8")
#define PICK(x, which) __builtin_shuffle(x, which)
#else
#define UNROLL
#define PICK(x, which) __builtin_shufflevector(x, which)
#endif

#define WIDTH 4
#define NAME(name) name##_of_4
#include "units.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
/* FMA, whose rounding is the same in vectors of any width. */
#pragma GCC optimize("fp-contract=fast")

#pragma GCC push_options
#pragma GCC target("avx512f,avx2,fma")
#define WIDTH 16
#define NAME(name) name##_of_16
#include "units.h"
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define WIDTH 8
#define NAME(name) name##_of_8
#include "units.h"
#pragma GCC pop_options
#endif

typedef struct {
  int width;
  void (*values)(const layer *l, float *out, int64_t row, int64_t end, int d);
  void (*slopes)(const layer *l, const sums *s, const float *g, int64_t row, int64_t end,
                 int64_t unit, float *d_kept, int d);
} processor;

static processor this_processor(void) {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return __builtin_cpu_supports("avx512f") ? (processor){16, values_of_16, slopes_of_16}
                                             : (processor){8, values_of_8, slopes_of_8};
#endif
  return (processor){4, values_of_4, slopes_of_4};
}

typedef struct {
  layer layer;
  processor processor;
  const float *g;
  float *out, *d_kept, *d_context, *room;
  int64_t parts, images, padded, each; /* of a part at most; of its room */
  int d;
} call;

static int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t at_least(int64_t a, int64_t b) { return a > b ? a : b; }

static void *memory(int64_t count) {
  void *found = calloc(at_least(count, 1), sizeof(float));
  if (!found) abort(); /* as XLA does */
  return found;
}

static void compute_values(void *data, int64_t part) {
  const call *c = data;
  const int64_t blocks = (c->layer.images * c->layer.samples + LANES - 1) / LANES;
  const int64_t start = blocks * part / c->parts, end = blocks * (part + 1) / c->parts;
  const int64_t all = c->layer.images * c->layer.samples;
  c->processor.values(&c->layer, c->out, start * LANES, at_most(end * LANES, all), c->d);
}

static sums sums_of(const call *c, int64_t part) {
  const int64_t line = c->padded;
  sums s = {.image = part * c->images, .padded = line, .first = c->room + part * c->each};
  s.kernel = s.first + KEPT(c->d) * line;
  s.d_first = s.kernel + OUTPUTS(c->d) * line;
  s.d_kernel = s.d_first + KEPT(c->d) * line;
  s.d_bias = s.d_kernel + OUTPUTS(c->d) * line;
  s.context = s.d_bias + OUTPUTS(c->d);
  s.d_context = s.context + c->images * line;
  s.d_kept = s.d_context + c->images * line;
  return s;
}

/* The sum of what every unit gave, always in the same order. */
INLINE float total(const float *p) {
  typedef float four __attribute__((vector_size(16), aligned(4), may_alias));
  const four *each = (const four *)p, sum = (each[0] + each[2]) + (each[1] + each[3]);
  return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

static void compute_slopes(void *data, int64_t part) {
  const call *c = data;
  const layer *l = &c->layer;
  const sums s = sums_of(c, part);
  const int kept = KEPT(c->d), outputs = OUTPUTS(c->d);
  const int64_t images = at_most(c->images, l->images - s.image), all = l->images * l->samples;
  for (int k = 0; k < kept; k++)
    memcpy(s.first + k * s.padded, l->first + k * l->width, l->width * sizeof(float));
  for (int64_t w = 0; w < l->width; w++) {
    for (int o = 0; o < outputs; o++) s.kernel[o * s.padded + w] = l->kernel[w * outputs + o];
    for (int64_t n = 0; n < images; n++)
      s.context[n * s.padded + w] = l->context[w * l->images + s.image + n];
  }
  const int64_t last = (s.image + images) * l->samples;
  for (int64_t row = s.image * l->samples, end; row < last; row = end) {
    end = at_most(row + ROWS, last);
    memset(s.d_kept, 0, (end - row) * kept * LANES * sizeof(float));
    for (int64_t unit = 0; unit < s.padded; unit += c->processor.width)
      c->processor.slopes(l, &s, c->g, row, end, unit, s.d_kept + unit % LANES, c->d);
    for (int64_t n = row; n < end; n++) {
      for (int k = 0; k < kept; k++)
        c->d_kept[k * all + n] = total(s.d_kept + ((n - row) * kept + k) * LANES);
      for (int o = 0; o < outputs; o++) s.d_bias[o] += c->g[o * all + n];
    }
  }
  for (int64_t w = 0; w < l->width; w++)
    for (int64_t n = 0; n < images; n++)
      c->d_context[w * l->images + s.image + n] = s.d_context[n * s.padded + w];
}

static call call_of(const frame *f) {
  buffer **given = f->arguments.each;
  const int64_t *context = given[0]->sizes, *kept = given[2]->sizes;
  return (call){
      .layer = {given[0]->data, given[1]->data, given[2]->data, given[3]->data, given[4]->data,
                context[1], kept[1] / context[1], context[0], context[1]},
      .processor = this_processor(), .d = kept[0] + given[3]->sizes[1] / 2,
  };
}

void *flowjax_inv_call_perceptron(const frame *f) {
  if (is_question(f)) return NULL;
  call c = call_of(f);
  layer *l = &c.layer;
  float *filled = NULL;
  if (l->images < LANES) {
    filled = memory(l->width * LANES);
    for (int64_t w = 0; w < l->width; w++)
      memcpy(filled + w * LANES, l->context + w * l->images, l->images * sizeof(float));
    l->context = filled, l->line = LANES;
  }
  c.out = f->results.each[0]->data;
  c.parts = at_most(threads_of(f), at_least(l->images * l->samples / (4 * ROWS), 1));
  share(f, compute_values, &c, c.parts);
  free(filled);
  return NULL;
}

/* Parts are the same for any number of threads, and so are the sums over them. */
void *flowjax_inv_call_perceptron_slopes(const frame *f) {
  if (is_question(f)) return NULL;
  call c = call_of(f);
  const layer *l = &c.layer;
  const int kept = KEPT(c.d), outputs = OUTPUTS(c.d);
  float *results[5];
  for (int n = 0; n < 5; n++) results[n] = f->results.each[n]->data;
  c.g = f->arguments.each[5]->data, c.d_context = results[0], c.d_kept = results[2];
  c.images = at_least((l->images + PARTS - 1) / PARTS, (ROWS + l->samples - 1) / l->samples);
  c.parts = (l->images + c.images - 1) / c.images;
  c.padded = (l->width + LANES - 1) / LANES * LANES;
  c.each = 2 * (kept + outputs + c.images) * c.padded + outputs + ROWS * kept * LANES;
  c.room = memory(c.parts * c.each);
  share(f, compute_slopes, &c, c.parts);
  for (int64_t part = 1; part < c.parts; part++) {
    const sums to = sums_of(&c, 0), from = sums_of(&c, part);
    for (int64_t n = 0; n < to.context - to.d_first; n++) to.d_first[n] += from.d_first[n];
  }
  const sums s = sums_of(&c, 0);
  for (int64_t w = 0; w < l->width; w++) {
    for (int k = 0; k < kept; k++) results[1][k * l->width + w] = s.d_first[k * s.padded + w];
    for (int o = 0; o < outputs; o++) results[3][w * outputs + o] = s.d_kernel[o * s.padded + w];
  }
  memcpy(results[4], s.d_bias, outputs * sizeof(float));
  free(c.room);
  return NULL;
}
