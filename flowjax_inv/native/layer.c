/* A convolution, its bias, the maximum of every 2 x 2, ReLU, as XLA calls them. By winograd.c where it
   computes them; else by oneDNN, a few images at a time, so that what it gives is still in the cache
   when the rest is done. */

#include <stdlib.h>
#include <string.h>

#include "foreign.h"
#include "onednn.h"

#include "narrow.h"
#include "winograd.h"

#define INLINE static inline __attribute__((always_inline))
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WIDEST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDEST
#endif

enum { AT_A_TIME = 1 << 17 }; /* outputs of a convolution: half a megabyte */

/* Eight numbers from any address. */
typedef float eight __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t which __attribute__((vector_size(32)));

/* NaN stays NaN, here and below, as in XLA. */
INLINE void raise_to(eight *most, const float *p) {
  const eight other = *(const eight *)p;
  const which kept = (*most > other) | (*most != *most);
  *most = (eight)(((which)*most & kept) | ((which)other & ~kept));
}

INLINE void add(eight *x, const float *bias, int relu) {
  *x += *(const eight *)bias;
  *x = (eight)((which)*x & ~((*x < 0) & ((which){0} - relu)));
}

/* Add biases to the pixels of pictures, where they lie. */
WIDEST static void finish(float *x, const float *bias, int64_t pixels, int64_t channels, int relu) {
  for (; pixels--; x += channels) {
    int64_t c = 0;
    for (; c + 8 <= channels; c += 8) add((eight *)(x + c), bias + c, relu);
    for (; c < channels; c++) {
      x[c] += bias[c];
      if (relu && x[c] < 0) x[c] = 0;
    }
  }
}

/* Pool pictures of these sizes, then add biases. Up to seven numbers are read behind both; written
   where the next pixels come, but not beyond their line. */
WIDEST static void pool(const float *pictures, const float *bias, float *out, const int64_t *sizes,
                        int relu) {
  const int64_t channels = sizes[3], row = sizes[2] * channels, columns = sizes[2] / 2;
  for (int64_t n = 0; n < sizes[0]; n++)
    for (int64_t i = 0; i < sizes[1] / 2; i++) {
      const float *p = pictures + (n * sizes[1] + 2 * i) * row;
      for (int64_t j = 0; j < columns; j++, p += 2 * channels, out += channels)
        for (int64_t c = 0; c < channels; c += 8) {
          eight x = *(const eight *)(p + c);
          raise_to(&x, p + channels + c);
          raise_to(&x, p + row + c);
          raise_to(&x, p + row + channels + c);
          add(&x, bias + c, relu);
          if ((columns - j) * channels - c >= 8)
            *(eight *)(out + c) = x;
          else
            memcpy(out + c, &x, (channels - c) * sizeof(float));
        }
    }
}

/* Of this thread, and kept: XLA's threads live as long as the process. */
static float *room_for(int64_t count) {
  static _Thread_local float *room;
  static _Thread_local int64_t size;
  if (count > size) {
    free(room);
    size = (count + 15) / 16 * 16;
    if (!(room = aligned_alloc(64, size * sizeof(float)))) abort(); /* as XLA does */
  }
  return room;
}

typedef struct {
  key key;
  float *images, *kernel, *bias, *out;
  int64_t parts;
  int pool, relu;
  char message[MESSAGE];
} call;

static int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

static void work(void *data, int64_t part) {
  call *c = data;
  key k = c->key;
  const int64_t batch = k.sizes[IMAGES][0], end = batch * (part + 1) / c->parts;
  const int64_t *sizes = k.sizes[OUTPUTS], channels = sizes[3];
  const int64_t image = length(k.sizes[IMAGES]) / batch, made = length(sizes) / batch;
  const int64_t kept = c->pool ? sizes[1] / 2 * (sizes[2] / 2) * channels : made;
  const int64_t most = AT_A_TIME > made ? AT_A_TIME / made : 1;
  int64_t n = batch * part / c->parts, count;
  const int64_t own = (c->pool ? flowjax_inv_winograd_room : flowjax_inv_narrow_room)(&k);
  if (own) {
    float *arrays[ARRAYS] = {c->images + n * image, c->kernel, c->out + n * kept};
    k.sizes[IMAGES][0] = end - n;
    (c->pool ? flowjax_inv_winograd : flowjax_inv_narrow)(&k, arrays, c->bias, c->relu, room_for(own));
    return;
  }
  for (; n < end; n += count) {
    count = k.sizes[IMAGES][0] = k.sizes[OUTPUTS][0] = at_most(most, end - n);
    float *out = c->out + n * kept, *arrays[ARRAYS] = {c->images + n * image, c->kernel, out};
    float *bias = c->pool ? room_for(channels + 8 + count * made + 8) : c->bias;
    if (c->pool) arrays[OUTPUTS] = bias + channels + 8;
    flowjax_inv_convolve(&k, arrays, c->message);
    if (c->pool)
      pool(arrays[OUTPUTS], memcpy(bias, c->bias, channels * sizeof(float)), out, sizes, c->relu);
    else
      finish(out, bias, count * sizes[1] * sizes[2], channels, c->relu);
  }
}

void *flowjax_inv_call_layer(const frame *f) {
  if (is_question(f)) return NULL;
  buffer **given = f->arguments.each;
  call c = {.key = {.map = FORWARD, .stride = option(f, "stride"), .padding = option(f, "padding")},
            .images = given[0]->data, .kernel = given[1]->data, .bias = given[2]->data,
            .out = f->results.each[0]->data, .pool = option(f, "pool"), .relu = option(f, "relu")};
  int64_t *images = c.key.sizes[IMAGES], *kernel = c.key.sizes[KERNEL];
  int64_t *outputs = c.key.sizes[OUTPUTS];
  memcpy(images, given[0]->sizes, sizeof c.key.sizes[IMAGES]);
  memcpy(kernel, given[1]->sizes, sizeof c.key.sizes[KERNEL]);
  outputs[0] = images[0], outputs[3] = kernel[3];
  for (int n = 1; n <= 2; n++)
    outputs[n] = (images[n] + 2 * c.key.padding - kernel[n - 1]) / c.key.stride + 1;
  c.parts = at_most(threads_of(f), images[0]);
  share(f, work, &c, c.parts);
  return *c.message ? failure(f, c.message) : NULL;
}
