// Forward and backward passes that PyTorch does slowly on few rows, for the trainer.
//
// All arrays are float32, row-major.  R = rows (windows x tokens).  `ld*` is the distance between
// rows in elements.  Every backward pass overwrites the gradients it writes (no accumulation),
// except where "adds to" is said.  HD (the head width of KDA) is given at compile time.
// Formulas: the model page, sections 3.2 (norm), 3.3 (AttnRes), 3.4 (KDA), 3.6 (experts), 3.7 (SiTU).
//
// Threads: one call runs on one thread and touches only its arguments.

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void (*Sgemm)(int order, int ta, int tb, int m, int n, int k, float alpha, const float* a,
                      int lda, const float* b, int ldb, float beta, float* c, int ldc);
static Sgemm sgemm;
enum { ROW = 101, N = 111, T = 112 };  // CBLAS constants

void set_sgemm(void* address) { sgemm = (Sgemm)address; }

static inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// ---- RMSNorm: y = x * r * w, r = 1/sqrt(mean x^2 + eps) ----------------------------------------

void rms_fwd(const float* x, const float* w, int R, int d, float eps, float* y, float* r) {
  for (int i = 0; i < R; i++) {
    const float* xi = x + (long)i * d;
    float ss = 0;
    for (int c = 0; c < d; c++) ss += xi[c] * xi[c];
    float ri = 1.0f / sqrtf(ss / d + eps);
    r[i] = ri;
    for (int c = 0; c < d; c++) y[(long)i * d + c] = xi[c] * ri * w[c];
  }
}

void rms_bwd(const float* x, const float* w, const float* r, const float* dy, int R, int d,
             float* dx, float* dw) {
  memset(dw, 0, sizeof(float) * d);
  for (int i = 0; i < R; i++) {
    const float *xi = x + (long)i * d, *g = dy + (long)i * d;
    float ri = r[i], dot = 0;
    for (int c = 0; c < d; c++) dot += g[c] * w[c] * xi[c];
    float k = dot * ri * ri / d;
    for (int c = 0; c < d; c++) {
      dw[c] += g[c] * xi[c] * ri;
      dx[(long)i * d + c] = ri * (g[c] * w[c] - xi[c] * k);
    }
  }
}

// ---- AttnRes mixture of S sources ---------------------------------------------------------------
// dot, rinv, p: [R][S], kept for the backward pass.  d <= 1024.

void mix_fwd(const float* const* src, const float* nw, const float* pw, int S, int R, int d,
             float eps, float* out, float* dot, float* rinv, float* p) {
  float fold[1024];
  for (int c = 0; c < d; c++) fold[c] = nw[c] * pw[c];
  for (int i = 0; i < R; i++) {
    float best = -1e30f, sum = 0, *pi = p + (long)i * S;
    for (int s = 0; s < S; s++) {
      const float* v = src[s] + (long)i * d;
      float a = 0, ss = 0;
      for (int c = 0; c < d; c++) a += v[c] * fold[c], ss += v[c] * v[c];
      float ri = 1.0f / sqrtf(ss / d + eps);
      dot[(long)i * S + s] = a;
      rinv[(long)i * S + s] = ri;
      pi[s] = a * ri;
      best = pi[s] > best ? pi[s] : best;
    }
    for (int s = 0; s < S; s++) sum += pi[s] = expf(pi[s] - best);
    float* o = out + (long)i * d;
    for (int s = 0; s < S; s++) {
      const float* v = src[s] + (long)i * d;
      float ps = pi[s] /= sum;
      if (s == 0)
        for (int c = 0; c < d; c++) o[c] = ps * v[c];
      else
        for (int c = 0; c < d; c++) o[c] += ps * v[c];
    }
  }
}

void mix_bwd(const float* const* src, const float* nw, const float* pw, const float* dot,
             const float* rinv, const float* p, const float* dout, int S, int R, int d,
             float* const* dsrc, float* dnw, float* dpw) {
  float fold[1024], dfold[1024], dp[64];
  for (int c = 0; c < d; c++) fold[c] = nw[c] * pw[c], dfold[c] = 0;
  for (int i = 0; i < R; i++) {
    const float *g = dout + (long)i * d, *pi = p + (long)i * S;
    float mean = 0;
    for (int s = 0; s < S; s++) {
      const float* v = src[s] + (long)i * d;
      float a = 0;
      for (int c = 0; c < d; c++) a += g[c] * v[c];
      dp[s] = a;
      mean += a * pi[s];
    }
    for (int s = 0; s < S; s++) {
      const float* v = src[s] + (long)i * d;
      float *o = dsrc[s] + (long)i * d, ri = rinv[(long)i * S + s];
      float ds = pi[s] * (dp[s] - mean), a = ds * ri;
      float b = ds * dot[(long)i * S + s] * ri * ri * ri / d, ps = pi[s];
      for (int c = 0; c < d; c++) {
        o[c] = ps * g[c] + a * fold[c] - b * v[c];
        dfold[c] += a * v[c];
      }
    }
  }
  for (int c = 0; c < d; c++) dnw[c] = dfold[c] * pw[c], dpw[c] = dfold[c] * nw[c];
}

// ---- SiTU: gu = [gate | up] of width 2w -> w ----------------------------------------------------

void situ_fwd(const float* gu, int ldgu, int R, int w, float* out) {
  for (int i = 0; i < R; i++) {
    const float *g = gu + (long)i * ldgu, *u = g + w;
    float* o = out + (long)i * w;
    for (int c = 0; c < w; c++)
      o[c] = 100.0f * tanhf(g[c] * 0.25f) * sigmoid(g[c]) * tanhf(u[c] * 0.04f);
  }
}

void situ_bwd(const float* gu, int ldgu, const float* dout, int R, int w, float* dgu, int lddgu) {
  for (int i = 0; i < R; i++) {
    const float *g = gu + (long)i * ldgu, *u = g + w, *o = dout + (long)i * w;
    float *dg = dgu + (long)i * lddgu, *du = dg + w;
    for (int c = 0; c < w; c++) {
      float a = tanhf(g[c] * 0.25f), s = sigmoid(g[c]), b = tanhf(u[c] * 0.04f);
      dg[c] = o[c] * 25.0f * b * ((1 - a * a) * s + 4.0f * a * s * (1 - s));
      du[c] = o[c] * 4.0f * a * s * (1 - b * b);
    }
  }
}

// ---- KDA between its matrix products ------------------------------------------------------------
// proj [R][ld]: columns q0[n] k0[n] v0[n] gate[n] (f_a [HD], not read here) b[H], n = H*HD.
// zf [R][n]: f_b(f_a x).  conv [3][n][4].  out [R][n]: normalised and gated, before o_proj.

typedef struct {
  float q[HD], k[HD], v[HD];      // after convolution, SiLU and (q, k) L2 norm
  float yq[HD], yk[HD], yv[HD];   // before SiLU
  float sig[HD], alpha[HD];       // sigma(exp(A_log) z), decay
  float w[HD], e[HD], o[HD];      // beta (v-u), v-u, output
  float beta, rq, rk;             // rq, rk: 1/sqrt(sum+1e-6)
} Step;

static void conv(const float* src, long ld, const float* w, int t, float* y) {
  for (int c = 0; c < HD; c++) y[c] = 0;
  for (int tau = t < 3 ? 3 - t : 0; tau < 4; tau++) {
    const float* s = src + (long)(t - 3 + tau) * ld;
    for (int c = 0; c < HD; c++) y[c] += w[tau * HD + c] * s[c];
  }
}

static float silu_l2(const float* y, float scale, float* out) {
  float ss = 0;
  for (int c = 0; c < HD; c++) out[c] = y[c] * sigmoid(y[c]), ss += out[c] * out[c];
  float r = 1.0f / sqrtf(ss + 1e-6f);
  for (int c = 0; c < HD; c++) out[c] *= r * scale;
  return r;
}

static void transpose_taps(const float* conv_w, int n, int h, float* wt) {  // -> [3][4][HD]
  for (int m = 0; m < 3; m++)
    for (int c = 0; c < HD; c++)
      for (int tau = 0; tau < 4; tau++)
        wt[(m * 4 + tau) * HD + c] = conv_w[((long)m * n + h * HD + c) * 4 + tau];
}

// The recurrence of one window and head.  states: null, or [n_tokens][HD*HD] states before a step.
static void run(const float* P, long ld, const float* zf, const float* wt, float ea,
                const float* dt, int n, int h, int n_tokens, float lower, Step* st, float* states) {
  float S[HD * HD];
  memset(S, 0, sizeof S);
  const float scale = 1.0f / sqrtf((float)HD);
  for (int t = 0; t < n_tokens; t++) {
    Step* s = st + t;
    const float *q0 = P + h * HD, *k0 = q0 + n, *v0 = k0 + n;
    conv(q0, ld, wt, t, s->yq);
    conv(k0, ld, wt + 4 * HD, t, s->yk);
    conv(v0, ld, wt + 8 * HD, t, s->yv);
    s->rq = silu_l2(s->yq, scale, s->q);
    s->rk = silu_l2(s->yk, 1.0f, s->k);
    for (int c = 0; c < HD; c++) s->v[c] = s->yv[c] * sigmoid(s->yv[c]);
    s->beta = sigmoid(P[(long)t * ld + 4 * n + HD + h]);
    for (int c = 0; c < HD; c++) {
      s->sig[c] = sigmoid(ea * (zf[(long)t * n + h * HD + c] + dt[h * HD + c]));
      s->alpha[c] = expf(lower * s->sig[c]);
    }
    if (states) memcpy(states + (long)t * HD * HD, S, sizeof S);
    float u[HD] = {0}, o[HD] = {0}, w[HD];
    for (int c = 0; c < HD; c++)
      for (int j = 0; j < HD; j++) {
        S[c * HD + j] *= s->alpha[c];
        u[j] += S[c * HD + j] * s->k[c];
      }
    for (int j = 0; j < HD; j++) s->e[j] = s->v[j] - u[j], s->w[j] = w[j] = s->beta * s->e[j];
    for (int c = 0; c < HD; c++)
      for (int j = 0; j < HD; j++) {
        S[c * HD + j] += s->k[c] * w[j];
        o[j] += S[c * HD + j] * s->q[c];
      }
    memcpy(s->o, o, sizeof o);
  }
}

static float out_norm(const float* o, float eps) {
  float ss = 0;
  for (int c = 0; c < HD; c++) ss += o[c] * o[c];
  return 1.0f / sqrtf(ss / HD + eps);
}

void kda_fwd(const float* proj, int ld, const float* zf, const float* conv_w, const float* a_log,
             const float* dt, const float* o_norm, int n_windows, int n_tokens, int H, float lower,
             float eps, float* out) {
  const int n = H * HD;
  Step* st = malloc(sizeof(Step) * n_tokens);
  float wt[12 * HD];
  for (int b = 0; b < n_windows; b++)
    for (int h = 0; h < H; h++) {
      const float* P = proj + (long)b * n_tokens * ld;
      transpose_taps(conv_w, n, h, wt);
      run(P, ld, zf + (long)b * n_tokens * n, wt, expf(a_log[h]), dt, n, h, n_tokens, lower, st, 0);
      for (int t = 0; t < n_tokens; t++) {
        const float* g = P + (long)t * ld + 3 * n + h * HD;
        float r = out_norm(st[t].o, eps), *y = out + ((long)b * n_tokens + t) * n + h * HD;
        for (int c = 0; c < HD; c++) y[c] = st[t].o[c] * r * o_norm[c] * sigmoid(g[c]);
      }
    }
  free(st);
}

// x -> silu -> l2 (r > 0) backwards: from dx to the gradient before SiLU, in place.
static void silu_l2_bwd(const float* y, const float* x, float r, float scale, float* g) {
  if (r > 0) {  // x = scale * r * silu(y):  d silu = scale r (g - x^ (x^.g)), x^ = x / scale
    float dot = 0;
    for (int c = 0; c < HD; c++) dot += g[c] * x[c];
    for (int c = 0; c < HD; c++) g[c] = scale * r * (g[c] - x[c] * dot / (scale * scale));
  }
  for (int c = 0; c < HD; c++) {
    float s = sigmoid(y[c]);
    g[c] *= s + y[c] * s * (1 - s);
  }
}

static void conv_bwd(const float* src, long ld, const float* w, int t, const float* dy, float* dsrc,
                     float* dw) {
  for (int tau = t < 3 ? 3 - t : 0; tau < 4; tau++) {
    const float* s = src + (long)(t - 3 + tau) * ld;
    float* ds = dsrc + (long)(t - 3 + tau) * ld;
    for (int c = 0; c < HD; c++) {
      ds[c] += w[tau * HD + c] * dy[c];
      dw[tau * HD + c] += dy[c] * s[c];
    }
  }
}

// dproj [R][ld]: every column but f_a's is written.  dzf [R][n].
void kda_bwd(const float* proj, int ld, const float* zf, const float* conv_w, const float* a_log,
             const float* dt, const float* o_norm, const float* dout, int n_windows, int n_tokens,
             int H, float lower, float eps, float* dproj, float* dzf, float* dconv, float* da_log,
             float* ddt, float* do_norm) {
  const int n = H * HD;
  const float scale = 1.0f / sqrtf((float)HD);
  Step* st = malloc(sizeof(Step) * n_tokens);
  float* states = malloc(sizeof(float) * HD * HD * n_tokens);
  float wt[12 * HD], dwt[12 * HD], dS[HD * HD];
  memset(dproj, 0, sizeof(float) * n_windows * n_tokens * ld);
  memset(dconv, 0, sizeof(float) * 3 * n * 4);
  memset(da_log, 0, sizeof(float) * H);
  memset(ddt, 0, sizeof(float) * n);
  memset(do_norm, 0, sizeof(float) * HD);
  for (int b = 0; b < n_windows; b++)
    for (int h = 0; h < H; h++) {
      const float *P = proj + (long)b * n_tokens * ld, *Z = zf + (long)b * n_tokens * n;
      float *dP = dproj + (long)b * n_tokens * ld, ea = expf(a_log[h]);
      transpose_taps(conv_w, n, h, wt);
      memset(dwt, 0, sizeof dwt);
      memset(dS, 0, sizeof dS);
      run(P, ld, Z, wt, ea, dt, n, h, n_tokens, lower, st, states);
      for (int t = n_tokens - 1; t >= 0; t--) {
        Step* s = st + t;
        const long row = (long)b * n_tokens + t;
        const float *g = P + (long)t * ld + 3 * n + h * HD, *dy = dout + row * n + h * HD;
        float *dg = dP + (long)t * ld + 3 * n + h * HD, r = out_norm(s->o, eps), dot = 0;
        float go[HD], dq[HD], dk[HD], dv[HD], dw[HD], da[HD];
        for (int c = 0; c < HD; c++) {
          float sg = sigmoid(g[c]), x = s->o[c] * r;
          dg[c] = dy[c] * x * o_norm[c] * sg * (1 - sg);
          do_norm[c] += dy[c] * sg * x;
          go[c] = dy[c] * sg * o_norm[c];
          dot += go[c] * s->o[c];
        }
        for (int c = 0; c < HD; c++) go[c] = r * (go[c] - s->o[c] * r * r * dot / HD);

        const float* S0 = states + (long)t * HD * HD;
        for (int j = 0; j < HD; j++) dw[j] = 0;
        for (int c = 0; c < HD; c++) {  // S = Sd + k w^T;  o = S^T q
          float a = s->alpha[c], kc = s->k[c], qc = s->q[c], x = 0, y = 0;
          for (int j = 0; j < HD; j++) {
            float St = a * S0[c * HD + j] + kc * s->w[j];
            x += St * go[j];
            float D = dS[c * HD + j] += qc * go[j];
            y += D * s->w[j];
            dw[j] += D * kc;
          }
          dq[c] = x;
          dk[c] = y;
        }
        float dbeta = 0, du[HD];
        for (int j = 0; j < HD; j++) {
          dbeta += dw[j] * s->e[j];
          dv[j] = s->beta * dw[j];
          du[j] = -dv[j];
        }
        for (int c = 0; c < HD; c++) {  // u = Sd^T k;  Sd = alpha S0
          float a = s->alpha[c], kc = s->k[c], x = 0, y = 0;
          for (int j = 0; j < HD; j++) {
            float D = dS[c * HD + j] + kc * du[j];
            x += S0[c * HD + j] * du[j];
            y += D * S0[c * HD + j];
            dS[c * HD + j] = a * D;
          }
          dk[c] += a * x;
          da[c] = y;
        }
        dP[(long)t * ld + 4 * n + HD + h] = dbeta * s->beta * (1 - s->beta);
        for (int c = 0; c < HD; c++) {
          float dx = da[c] * s->alpha[c] * lower * s->sig[c] * (1 - s->sig[c]);
          float z = Z[(long)t * n + h * HD + c] + dt[h * HD + c];
          da_log[h] += dx * ea * z;
          dzf[row * n + h * HD + c] = dx * ea;
          ddt[h * HD + c] += dx * ea;
        }
        silu_l2_bwd(s->yq, s->q, s->rq, scale, dq);
        silu_l2_bwd(s->yk, s->k, s->rk, 1.0f, dk);
        silu_l2_bwd(s->yv, s->v, 0, 1.0f, dv);
        conv_bwd(P + h * HD, ld, wt, t, dq, dP + h * HD, dwt);
        conv_bwd(P + n + h * HD, ld, wt + 4 * HD, t, dk, dP + n + h * HD, dwt + 4 * HD);
        conv_bwd(P + 2 * n + h * HD, ld, wt + 8 * HD, t, dv, dP + 2 * n + h * HD, dwt + 8 * HD);
      }
      for (int m = 0; m < 3; m++)
        for (int c = 0; c < HD; c++)
          for (int tau = 0; tau < 4; tau++)
            dconv[((long)m * n + h * HD + c) * 4 + tau] += dwt[(m * 4 + tau) * HD + c];
    }
  free(states);
  free(st);
}

// ---- routed experts -----------------------------------------------------------------------------
// z [R][ldz] (latent, width L); idx [R][K]; w [R][K]; w13 [E][2M][L] (gate rows, then up rows);
// w2 [E][L][M].  Slots (row, pick) are sorted by expert; `order` [R*K] holds row*K+pick, `first`
// [E+1] where an expert's slots begin.  X [R*K][L], gu [R*K][2M], act [R*K][M], Y [R*K][L] are kept.

void experts_fwd(const float* z, int ldz, const int64_t* idx, const float* w, const float* w13,
                 const float* w2, int R, int K, int E, int L, int M, int* order, int* first,
                 float* X, float* gu, float* act, float* Y, float* agg) {
  memset(first, 0, sizeof(int) * (E + 1));
  for (int i = 0; i < R * K; i++) first[idx[i] + 1]++;
  for (int e = 0; e < E; e++) first[e + 1] += first[e];
  int* at = malloc(sizeof(int) * E);
  memcpy(at, first, sizeof(int) * E);
  for (int i = 0; i < R * K; i++) order[at[idx[i]]++] = i;
  free(at);
  for (int i = 0; i < R * K; i++)
    memcpy(X + (long)i * L, z + (long)(order[i] / K) * ldz, sizeof(float) * L);
  for (int e = 0; e < E; e++) {
    long f = first[e];
    int m = first[e + 1] - first[e];
    if (!m) continue;
    sgemm(ROW, N, T, m, 2 * M, L, 1, X + f * L, L, w13 + (long)e * 2 * M * L, L, 0, gu + f * 2 * M,
          2 * M);
    situ_fwd(gu + f * 2 * M, 2 * M, m, M, act + f * M);
    sgemm(ROW, N, T, m, L, M, 1, act + f * M, M, w2 + (long)e * L * M, M, 0, Y + f * L, L);
  }
  memset(agg, 0, sizeof(float) * R * L);
  for (int i = 0; i < R * K; i++) {
    float *a = agg + (long)(order[i] / K) * L, wi = w[order[i]];
    const float* y = Y + (long)i * L;
    for (int c = 0; c < L; c++) a[c] += wi * y[c];
  }
}

// dz [R][lddz] and dw [R][K], dw13, dw2 are written.
void experts_bwd(const float* dagg, const float* w, const float* w13, const float* w2, int R, int K,
                 int E, int L, int M, const int* order, const int* first, const float* X,
                 const float* gu, const float* act, const float* Y, float* dz, int lddz, float* dw,
                 float* dw13, float* dw2) {
  float *dY = malloc(sizeof(float) * R * K * L), *dA = malloc(sizeof(float) * R * K * M);
  float* dG = malloc(sizeof(float) * R * K * 2 * M);
  for (int i = 0; i < R * K; i++) {
    const float *g = dagg + (long)(order[i] / K) * L, *y = Y + (long)i * L;
    float *o = dY + (long)i * L, dot = 0, wi = w[order[i]];
    for (int c = 0; c < L; c++) dot += g[c] * y[c], o[c] = wi * g[c];
    dw[order[i]] = dot;
  }
  for (int e = 0; e < E; e++) {
    long f = first[e];
    int m = first[e + 1] - first[e];
    float *d13 = dw13 + (long)e * 2 * M * L, *d2 = dw2 + (long)e * L * M;
    if (!m) {
      memset(d13, 0, sizeof(float) * 2 * M * L);
      memset(d2, 0, sizeof(float) * L * M);
      continue;
    }
    sgemm(ROW, T, N, L, M, m, 1, dY + f * L, L, act + f * M, M, 0, d2, M);
    sgemm(ROW, N, N, m, M, L, 1, dY + f * L, L, w2 + (long)e * L * M, M, 0, dA + f * M, M);
    situ_bwd(gu + f * 2 * M, 2 * M, dA + f * M, m, M, dG + f * 2 * M, 2 * M);
    sgemm(ROW, T, N, 2 * M, L, m, 1, dG + f * 2 * M, 2 * M, X + f * L, L, 0, d13, L);
    sgemm(ROW, N, N, m, L, 2 * M, 1, dG + f * 2 * M, 2 * M, w13 + (long)e * 2 * M * L, L, 0,
          dY + f * L, L);
  }
  for (int i = 0; i < R; i++) memset(dz + (long)i * lddz, 0, sizeof(float) * L);
  for (int i = 0; i < R * K; i++) {
    float* o = dz + (long)(order[i] / K) * lddz;
    const float* x = dY + (long)i * L;
    for (int c = 0; c < L; c++) o[c] += x[c];
  }
  free(dY);
  free(dA);
  free(dG);
}

// ---- optimiser ----------------------------------------------------------------------------------

// The compute copy of a weight: as stored in the checkpoint.
static float to_bf16(float x) {
  uint32_t u;
  memcpy(&u, &x, 4);
  u = (u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u;
  memcpy(&x, &u, 4);
  return x;
}

// Scale exponent of a group of 32: the smallest e with max|x| <= 6 * 2^e, within E8M0.
static int group_exponent(const float* x) {
  float top = 0;
  for (int i = 0; i < 32; i++) top = fmaxf(top, fabsf(x[i]));
  if (!(top > 0)) return -126;
  int e;
  float m = frexpf(top / 6.0f, &e);  // top/6 = m 2^e, m in [0.5, 1)
  if (m == 0.5f) e--;
  return e < -126 ? -126 : e > 120 ? 120 : e;
}

static float to_e2m1(float x) {  // |x| <= 6 up to rounding; result in {0, .5, 1, 1.5, 2, 3, 4, 6}
  float a = fabsf(x);
  float step = a < 2.0f ? 0.5f : a < 4.0f ? 1.0f : 2.0f;
  a = rintf(a / step) * step;
  return copysignf(a > 6.0f ? 6.0f : a, x);
}

enum { KIND_F32 = 0, KIND_BF16 = 1, KIND_MXFP4 = 2 };

void round_weights(const float* master, long n, int kind, float* copy) {
  if (kind == KIND_F32) memcpy(copy, master, sizeof(float) * n);
  if (kind == KIND_BF16)
    for (long i = 0; i < n; i++) copy[i] = to_bf16(master[i]);
  if (kind == KIND_MXFP4)
    for (long i = 0; i < n; i += 32) {
      int e = group_exponent(master + i);
      float up = ldexpf(1, e), down = ldexpf(1, -e);
      for (int j = 0; j < 32; j++) copy[i + j] = to_e2m1(master[i + j] * down) * up;
    }
}

// MXFP4 bytes of n master weights: packed [n/2], scale [n/32].  Same rounding as round_weights.
void pack_mxfp4(const float* master, long n, uint8_t* packed, uint8_t* scale) {
  static const float value[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (long i = 0; i < n; i += 32) {
    int e = group_exponent(master + i);
    scale[i / 32] = (uint8_t)(e + 127);
    for (int j = 0; j < 32; j++) {
      float x = to_e2m1(master[i + j] * ldexpf(1, -e));
      int code = 0;
      while (value[code] != fabsf(x)) code++;
      if (signbit(x)) code |= 8;
      if (j & 1)
        packed[(i + j) / 2] |= (uint8_t)(code << 4);
      else
        packed[(i + j) / 2] = (uint8_t)code;
    }
  }
}

// g0 += g1; the sum of squares of the result.
double add_gradients(float* g0, const float* g1, long n) {
  double total = 0;
  for (long i = 0; i < n; i += 4096) {
    long end = i + 4096 < n ? i + 4096 : n;
    float part = 0;
    for (long j = i; j < end; j++) {
      float g = g0[j] += g1[j];
      part += g * g;
    }
    total += part;
  }
  return total;
}

// AdamW with decoupled decay on one range, then the compute copy.  c1, c2: bias corrections.
void adamw(float* master, float* copy, float* m, float* v, const float* g, long n, int kind,
           float grad_scale, float lr, float wd, float b1, float b2, float c1, float c2) {
  for (long i = 0; i < n; i++) {
    float gi = g[i] * grad_scale;
    m[i] = b1 * m[i] + (1 - b1) * gi;
    v[i] = b2 * v[i] + (1 - b2) * gi * gi;
    master[i] -= lr * (m[i] * c1 / (sqrtf(v[i] * c2) + 1e-8f) + wd * master[i]);
  }
  round_weights(master, n, kind, copy);
}
