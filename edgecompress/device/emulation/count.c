/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A QEMU plugin that counts the instructions of an arm64 program, in all and by class.
 *
 * The program asks for a snapshot with prctl(0x51454d55, id), which fails with EINVAL and changes nothing: the plugin
 * then writes the counts so far as one line of JSON to the file that EDGECOMPRESS_COUNTS names.
 *
 * This file alone is under the GPL, as the header that it includes is. It is compiled on the machine that uses it,
 * against the header of that QEMU, and linked with no other part of edgecompress.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <qemu-plugin.h>

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

#define PRCTL 167
#define MARK 0x51454d55

/* Rows of a class follow each other. Encodings: Arm Architecture Reference Manual, DDI 0487, C4.1. */
static const struct {
    const char *name;
    uint32_t mask, value;
} CLASSES[] = {
    { "mmla_i8", 0xFFE0FC00, 0x4E80A400 },   /* SMMLA */
    { "mmla_i8", 0xFFE0FC00, 0x6E80A400 },   /* UMMLA */
    { "mmla_i8", 0xFFE0FC00, 0x4E80AC00 },   /* USMMLA */
    { "dot_i8", 0xBFE0FC00, 0x0E809400 },    /* SDOT (vector) */
    { "dot_i8", 0xBFE0FC00, 0x2E809400 },    /* UDOT (vector) */
    { "dot_i8", 0xBFC0F400, 0x0F80E000 },    /* SDOT (by element) */
    { "dot_i8", 0xBFC0F400, 0x2F80E000 },    /* UDOT (by element) */
    { "dot_i8", 0xBFE0FC00, 0x0E809C00 },    /* USDOT (vector) */
    { "dot_i8", 0xBFC0F400, 0x0F80F000 },    /* USDOT (by element) */
    { "dot_i8", 0xBFC0F400, 0x0F00F000 },    /* SUDOT (by element) */
    { "mlal", 0x9F20FC00, 0x0E208000 },      /* SMLAL, UMLAL (vector) */
    { "mlal", 0x9F20FC00, 0x0E20C000 },      /* SMULL, UMULL (vector) */
    { "mlal", 0x9F00F400, 0x0F002000 },      /* SMLAL, UMLAL (by element) */
    { "mlal", 0x9F00F400, 0x0F00A000 },      /* SMULL, UMULL (by element) */
    { "fmla_f32", 0xBFE0FC00, 0x0E20CC00 },  /* FMLA (vector) */
    { "fmla_f32", 0xBFC0F400, 0x0F801000 },  /* FMLA (by element) */
    { "fmla_f16", 0xBFE0FC00, 0x0E400C00 },  /* FMLA (vector) */
    { "fmla_f16", 0xBFC0F400, 0x0F001000 },  /* FMLA (by element) */
    { "bf16", 0xFFE0FC00, 0x6E40EC00 },      /* BFMMLA */
    { "bf16", 0xBFE0FC00, 0x2E40FC00 },      /* BFDOT (vector) */
    { "bf16", 0xBFC0F400, 0x0F40F000 },      /* BFDOT (by element) */
    { "sve", 0x1E000000, 0x04000000 },
    { "sme", 0x9E000000, 0x80000000 },
};
enum { ROWS = sizeof CLASSES / sizeof *CLASSES };

static uint64_t instructions, counts[ROWS];
static FILE *told;

static void snapshot(uint64_t id)
{
    fprintf(told, "{\"id\": %" PRIu64 ", \"instructions\": %" PRIu64, id, instructions);
    for (int row = 0; row < ROWS;) {
        const char *name = CLASSES[row].name;
        uint64_t sum = 0;
        while (row < ROWS && !strcmp(CLASSES[row].name, name)) {
            sum += counts[row++];
        }
        fprintf(told, ", \"%s\": %" PRIu64, name, sum);
    }
    fputs("}\n", told);
    fflush(told);
}

static void syscall_begins(qemu_plugin_id_t plugin, unsigned int cpu, int64_t number, uint64_t a1, uint64_t a2,
                           uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8)
{
    if (number == PRCTL && a1 == MARK) {
        snapshot(a2);
    }
}

static void count_one(struct qemu_plugin_insn *instruction)
{
    uint32_t word;

    memcpy(&word, qemu_plugin_insn_data(instruction), sizeof word);
    for (int row = 0; row < ROWS; row++) {
        if ((word & CLASSES[row].mask) == CLASSES[row].value) {
            qemu_plugin_register_vcpu_insn_exec_inline(instruction, QEMU_PLUGIN_INLINE_ADD_U64, &counts[row], 1);
            return;
        }
    }
}

static void block_translated(qemu_plugin_id_t plugin, struct qemu_plugin_tb *block)
{
    size_t n = qemu_plugin_tb_n_insns(block);

    qemu_plugin_register_vcpu_tb_exec_inline(block, QEMU_PLUGIN_INLINE_ADD_U64, &instructions, n);
    for (size_t i = 0; i < n; i++) {
        count_one(qemu_plugin_tb_get_insn(block, i));
    }
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t plugin, const qemu_info_t *info, int argc, char **argv)
{
    const char *file = getenv("EDGECOMPRESS_COUNTS");

    told = file ? fopen(file, "w") : NULL;
    if (!told) {
        fprintf(stderr, "count: EDGECOMPRESS_COUNTS names no file that can be written\n");
        return -1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(plugin, block_translated);
    qemu_plugin_register_vcpu_syscall_cb(plugin, syscall_begins);
    return 0;
}
