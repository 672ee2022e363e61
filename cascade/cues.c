/* SPDX-License-Identifier: Apache-2.0
 *
 * Cue words of English and Korean, found by the hash of a whole English word, or of the first one to three syllables of
 * a Korean word (endings vary, stems do not). A trained model replaces the cues' weights, not these lists.
 *
 * The hash table is built on first use and never changes, so any thread may read it. Two words with equal hashes would
 * be one cue; test_features.c proves that there are none.
 */
#include "cascade/cues.h"

#include <pthread.h>
#include <string.h>

#include "cascade/cascade.h"

static const struct {
	int8_t feature;
	const char *words;
} lists[] = {
    {CASC_F_ASKS, "what which who whom whose when where why how "
		  "무엇 무슨 뭐 뭔 어떤 어느 누구 누가 언제 어디 왜 어떻게 얼마 몇"},
    {CASC_F_EXPLAIN, "explain explains explained explaining explanation describe describes description elaborate "
		     "clarify illustrate interpret detail detailed overview understand "
		     "설명 묘사 서술 해설 해석 풀이 자세 상세 알려줘 이해"},
    {CASC_F_ANALYSE, "analyse analyze analyses analysis analysing analyzing evaluate evaluation assess assessment "
		     "critique review investigate examine discuss implications consequences tradeoff tradeoffs "
		     "분석 평가 검토 비평 고찰 논의 토론 조사 영향 시사"},
    {CASC_F_COMPARE, "compare compares compared comparing comparison contrast versus vs difference differences differ "
		     "similarities advantages disadvantages pros cons better "
		     "비교 대조 차이 장단점 공통점 장점 단점 다른점"},
    {CASC_F_WRITE,
     "write writes writing rewrite draft compose essay story poem article letter email blog report speech "
     "summarize summarise summary translate translation paraphrase outline brainstorm generate create "
     "작성 써줘 써주 글을 시를 소설 수필 편지 이메일 보고서 요약 번역 만들어 기사 대본 연설"},
    {CASC_F_CODE,
     "code coding program programming function implement implementation refactor debug bug compile compiler "
     "algorithm python javascript typescript java rust golang sql regex html css api class script "
     "코드 코딩 프로그 함수 구현 디버그 알고리 파이썬 자바 스크립 컴파일 버그 정규식 쿼리"},
    {CASC_F_MATHS, "calculate compute solve equation equations integral derivative proof theorem probability matrix "
		   "polynomial algebra geometry calculus sum product factor prime modulo logarithm "
		   "계산 방정식 적분 미분 증명 정리를 확률 행렬 다항식 대수 기하 수학 인수 소수 로그"},
    {CASC_F_REASON, "because therefore reason reasons reasoning justify argue argument prove step steps think thinking "
		    "plan design strategy optimize optimise infer deduce hypothesis "
		    "이유 근거 논증 단계 생각 추론 계획 설계 전략 최적화 가설 원인"},
    {CASC_F_SIMPLE, "hi hello hey thanks thank please yes no ok okay bye goodbye capital name spell color colour "
		    "안녕 고마워 감사 네 아니 수도 이름 철자 색깔 반가"},
};

enum { SLOTS = 1024 };

static struct {
	uint32_t hash;
	int8_t feature;
	bool used;
} table[SLOTS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint32_t hash_of(const char *word, size_t n)
{
	uint32_t h = CASC_HASH_SEED;
	for (size_t i = 0; i < n; i++)
		h = casc_hash_byte(h, (uint8_t)word[i]);
	return h;
}

static void build(void)
{
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
		for (const char *at = lists[i].words; *at != '\0';) {
			size_t n = strcspn(at, " ");
			uint32_t h = hash_of(at, n), slot = casc_hash_mix(h) % SLOTS;
			while (table[slot].used && table[slot].hash != h)
				slot = (slot + 1) % SLOTS;
			BUG_IF(table[slot].used, "cascade: the cue '%.*s' is in two lists", (int)n, at);
			table[slot].hash = h;
			table[slot].feature = lists[i].feature;
			table[slot].used = true;
			at += n + (at[n] == ' ');
		}
	}
}

int casc_cue_of(uint32_t hash)
{
	pthread_once(&once, build);
	for (uint32_t slot = casc_hash_mix(hash) % SLOTS; table[slot].used; slot = (slot + 1) % SLOTS)
		if (table[slot].hash == hash)
			return table[slot].feature;
	return -1;
}
