"""S1 Tensorize, S2 Multi-level SPM, S3 Multi-scope SPM."""

from tests.rules.conftest import DOT, GEMM, of

S1 = ("core/s1_tensorize", "core/s1_roles")
SHIFT = (*S1, "core/s1_shift")
DLBOOST = ("dlboost/schedule", "dlboost/copies", "dlboost/copy_steps")
PADDING = ("core/s1_tensorize", "core/s1_roles", "core/s1_padding")


def test_s1_finds_the_mapping_and_keeps_plain_code(answers):
    found = answers(GEMM + DOT + "pays(vector, 1).", *S1)
    tensorized = [one for one in found if "tensorize(c,dot)" in one]
    plain = [one for one in found if "plain(c)" in one]
    assert len(tensorized) == len(plain) == 1
    assert of(tensorized[0], "maps") == {"maps(c,n,n)", "maps(c,r,k)"}
    assert of(tensorized[0], "unit") == {"unit(c,m,1)", "unit(c,n,16)", "unit(c,k,4)"}
    assert of(plain[0], "maps", "aside") == {"maps(c,lane,n)", "aside(c,vector)"}


def test_s1_refuses_with_the_reason_and_never_fails(answers):
    for change, reason in (
        (("has(flag).", ""), "refused(c,(dot,straight),lacks(flag))"),
        (("tensor(a, u8).", "tensor(a, f16)."), "refused(c,(dot,straight),dtype(a,f16,u8))"),
        (("access(c, b, 1, n, 1).", ""), "refused(c,(dot,straight),unplayed(n))"),
    ):
        found = answers((GEMM + DOT).replace(*change), *S1)
        assert len(found) == 1
        assert reason in found[0]
        assert "plain(c)" in found[0]
        assert not of(found[0], "aside")


TWINS = "twin(s8, u8, 128).  twin(u8, s8, -128)."


def test_s1_reads_the_twin_of_a_type_with_an_offset(answers):
    signed = GEMM.replace("tensor(a, u8).", "tensor(a, s8).") + TWINS
    (found,) = (one for one in answers(signed + DOT, *SHIFT) if "tensorize(c,dot)" in one)
    assert of(found, "shifts") == {"shifts(c,a,128)"}
    assert {
        "step((10,c),shift(c,a,128))",
        "step((11,start(b)),get_sblock(start(b),start(b)))",
        'step((55,start(b)),annotate(start(b),"meta_schedule.layout_rewrite_preproc",1))',
        "step((97,c),start_with(c,start(b)))",
    } <= found
    assert "refused(c,(dot,crossed),varies(b,a))" in found


def test_s1_shifts_only_what_is_loaded_ahead_of_the_instruction(answers):
    signed = GEMM.replace("tensor(a, u8).", "tensor(a, s8).") + TWINS
    (found,) = answers(signed + DOT.replace("intrinsic_values(dot).", ""), *SHIFT)
    assert "refused(c,(dot,straight),dtype(a,s8,u8))" in found
    assert "plain(c)" in found


def test_s1_shifts_nothing_that_fits(answers):
    for found in answers(GEMM + TWINS + DOT, *SHIFT):
        assert not of(found, "shifts")
        assert "shifted(c,(dot,straight),a,128)" not in found


def test_s1_refuses_an_offset_that_cannot_be_made_up_for(answers):
    """The other operand varies, or would need an offset itself."""
    signed = GEMM.replace("tensor(a, u8).", "tensor(a, s8).") + TWINS
    both = GEMM.replace("tensor(a, u8).  tensor(b, s8).", "tensor(a, s8).  tensor(b, u8).") + TWINS + "constant(a)."
    for facts in (signed.replace("constant(b).", ""), both):
        (found,) = (one for one in answers(facts + DOT, *SHIFT) if "plain(c)" in one)
        assert "refused(c,(dot,straight),varies(a,b))" in found
        assert "fits(c,(dot,straight))" not in found


def test_s1_moves_a_result_in_which_the_role_is_not_innermost(answers):
    transposed = GEMM.replace(
        "access(c, c, 0, m, 1).  access(c, c, 1, n, 1).", "access(c, c, 0, n, 1).  access(c, c, 1, m, 1)."
    )
    assert transposed != GEMM
    (found,) = (one for one in answers(transposed + DOT, *S1) if "tensorize(c,dot)" in one)
    assert of(found, "moved", "staged") == {"moved(c,c,n)", "staged(c,c)"}
    assert "step((10,c),move(c,n))" in found


def test_s1_refuses_a_window_that_would_have_to_be_packed(answers):
    windowed = GEMM.replace("access(c, a, 1, k, 1).", "access(c, a, 0, k, 1).")  # row m + k, and no column of its own
    assert windowed != GEMM
    for found in answers(windowed + DOT, *S1):
        assert "misfit(c,(dot,straight),r,k,windowed(a))" in found


def test_s1_refuses_a_window_beside_another_role(answers):
    """Each element is where the register wants it, but in one dimension instead of two."""
    beside = GEMM.replace(
        "access(c, b, 0, k, 1).  access(c, b, 1, n, 1).", "access(c, b, 0, k, 1).  access(c, b, 0, n, 4)."
    )
    beside = beside.replace("pitch(b, 0, 40).  pitch(b, 1, 1).", "pitch(b, 0, 1).").replace("constant(b).", "")
    for found in answers(beside + DOT, *S1):
        assert {"misfit(c,(dot,straight),r,k,windowed(b))", "misfit(c,(dot,straight),n,n,windowed(b))"} <= found


def test_s1_seats_the_operands_crossed_where_only_that_fits(answers):
    crossed = GEMM.replace("operand(c, 0, a).  operand(c, 1, b).", "operand(c, 0, b).  operand(c, 1, a).")
    found = answers(crossed + DOT, *S1)
    assert {atom for one in found for atom in of(one, "chosen")} == {"chosen(c,(dot,crossed))"}


def test_s1_pads_to_the_unit_and_an_awkward_axis_a_little_further(answers):
    facts = (
        GEMM.replace("axis(c, m, spatial, 6)", "axis(c, m, spatial, 31)") + DOT + "pays(awkward, 1).  pays(padding, 1)."
    )
    found = next(one for one in answers(facts, *PADDING) if "tensorize(c,dot)" in one)
    extents = of(found, "candidate")
    assert {f"candidate(extent(c,k),{extent})" for extent in (12,)} == {one for one in extents if "(c,k)" in one}
    assert {"candidate(extent(c,n),48)"} == {one for one in extents if "(c,n)" in one}  # a constant has one layout
    assert {one for one in extents if "(c,m)" in one} == {f"candidate(extent(c,m),{extent})" for extent in (31, 32, 33)}


def test_s1_does_not_pad_a_handy_axis(answers):
    found = next(
        one
        for one in answers(GEMM + DOT + "pays(awkward, 1).  pays(padding, 1).", *PADDING)
        if "tensorize(c,dot)" in one
    )
    assert {"candidate(extent(c,m),6)"} == {one for one in of(found, "candidate") if "(c,m)" in one}
    assert "thumb(c3,exact(c,m),awkward)" in found


def test_s2_tiles_every_level_of_the_nest(answers):
    nest = """
    level(c, 1, outer, spatial).  level(c, 2, sum, reduce).  level(c, 3, inner, spatial).  level(c, 4, unit, spatial).
    level(c, 5, unit, reduce).  unrolled(c, inner).
    """
    files = ("core/s1_tensorize", "core/s1_roles", "core/s1_padding", "core/s2_multi_level_spm")
    found = next(one for one in answers(GEMM + DOT + nest, *files) if "tensorize(c,dot)" in one)
    assert of(found, "tile") == {
        "tile(c,m,outer)", "tile(c,m,inner)", "tile(c,n,outer)", "tile(c,n,inner)", "tile(c,n,unit)",
        "tile(c,k,sum)", "tile(c,k,unit)",
    }  # fmt: skip
    assert {one for one in of(found, "candidate") if "inner(c,outer)" in one} == {
        "candidate(inner(c,outer),m)", "candidate(inner(c,outer),n)",
    }  # fmt: skip
    assert "knob(inner(c,inner))" not in found  # the order of unrolled loops means nothing


def test_s2_cuts_an_axis_without_reuse_at_the_outermost_level_only(answers):
    batch = "axis(c, i, spatial, 3).  access(c, a, 2, i, 1).  access(c, b, 2, i, 1).  access(c, c, 2, i, 1)."
    nest = "level(c, 1, outer, spatial).  level(c, 2, inner, spatial).  level(c, 3, sum, reduce)."
    files = ("core/s1_tensorize", "core/s1_roles", "core/s1_padding", "core/s2_multi_level_spm")
    found = answers(GEMM + batch + DOT + nest, *files)[0]
    assert {one for one in of(found, "tile") if "(c,i," in one} == {"tile(c,i,outer)"}


def test_s3_routes_each_operand_its_own_way(answers):
    files = [f"core/{name}" for name in ("s1_tensorize", "s1_roles", "s1_padding", "s2_multi_level_spm")]
    found = next(
        one
        for one in answers(GEMM + DOT + "threads(1).  pays(place, 1).  pays(padding, 1).", *files, *DLBOOST)
        if "tensorize(c,dot)" in one and "variant(c,sliced)" not in one
    )
    assert of(found, "copy") == {"copy(feed(a),c,a,global)", "copy(pack(b),c,b,global)", "copy(drain(c),c,c,global)"}
    assert of(found, "layout") == {
        "layout(pack(b),(0,1),quotient(1,16))", "layout(pack(b),(1,0),quotient(0,4))",
        "layout(pack(b),(2,-4),remainder(1,16))", "layout(pack(b),(2,-1),remainder(0,4))",
    }  # fmt: skip
    assert not {one for one in of(found, "at") if "pack" in one}  # packed ahead, outside the kernel
    assert {one for one in of(found, "at") if "drain" in one} == {
        "at(drain(c),root)", "at(drain(c),task)", "at(drain(c),block)",
    }  # fmt: skip


def test_s3_a_slice_keeps_the_result_of_a_register_tile_out(answers):
    files = [f"core/{name}" for name in ("s1_tensorize", "s1_roles", "s1_padding", "s2_multi_level_spm")]
    found = next(
        one
        for one in answers(GEMM + DOT + "threads(1).  pays(place, 1).  pays(padding, 1).", *files, *DLBOOST)
        if "variant(c,sliced)" in one
    )
    assert "at(drain(c),block)" not in found


def test_s3_packs_inside_the_kernel_what_is_not_known_ahead(answers):
    files = [f"core/{name}" for name in ("s1_tensorize", "s1_roles", "s1_padding", "s2_multi_level_spm")]
    facts = GEMM.replace("constant(b).", "") + DOT + "threads(1).  pays(place, 1).  pays(padding, 1)."
    found = next(
        one for one in answers(facts, *files, *DLBOOST) if "tensorize(c,dot)" in one and "variant(c,sliced)" not in one
    )
    assert {one for one in of(found, "at") if "pack" in one} == {"at(pack(b),root)", "at(pack(b),task)"}
    assert not {one for one in of(found, "step") if "layout_rewrite_preproc" in one}
