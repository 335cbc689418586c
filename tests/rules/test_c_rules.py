"""C1 AddLoopSplit, C2 AddLoopFuse, C3 AddCandidates, C4 AddStageFuse, C5 AddMemLimit, C6 AddDLASpecific."""

from tests.rules.conftest import of

TILES = "tile(c, m, outer).  tile(c, m, inner).  tile(c, n, outer).  tile(c, n, inner)."


def test_c1_tiles_multiply_to_the_extent(atoms):
    found = atoms(TILES + "step(20, split(c, m)).", "core/c1_loop_split")
    assert of(found, "constraint") == {"constraint(c1,split(c,m),product(extent(c,m)))"}
    assert of(found, "factor") == {
        "factor(c1,split(c,m),tile(c,m,outer))", "factor(c1,split(c,m),tile(c,m,inner))",
    }  # fmt: skip
    assert of(found, "because") == {"because(c1,split(c,m),split(c,m))"}


def test_c2_a_fused_loop_is_as_long_as_its_parts_together(atoms):
    found = atoms(TILES + "step(31, fuse(c, outer)).", "core/c2_loop_fuse")
    assert of(found, "constraint") == {"constraint(c2,fuse(c,outer),product(fused(c,outer)))"}
    assert of(found, "factor") == {
        "factor(c2,fuse(c,outer),tile(c,m,outer))", "factor(c2,fuse(c,outer),tile(c,n,outer))",
    }  # fmt: skip


def test_c3_the_innermost_tile_is_the_intrinsics(atoms):
    facts = "tile(c, n, unit).  unit(c, n, 16).  pays(lanes, 1). "
    for way, thumb in (("tensorize(c, dot).", False), ("plain(c).", True)):
        found = atoms(facts + way, "core/c3_candidates")
        assert of(found, "constraint") == {"constraint(c3,unit(c,n),among(tile(c,n,unit),16))"}
        assert bool(of(found, "thumb")) == thumb  # other lanes would run


CONVOLUTION = """
indexes(c, x, h).  indexes(c, x, r).  tensor(x, u8).  bytes(u8, 1).
access(c, x, 0, h, 2).  access(c, x, 0, r, 1).
level(c, 1, outer, spatial).  level(c, 2, sum, reduce).
tile(c, h, outer).  tile(c, r, sum).  level(c, 3, inner, spatial).  tile(c, h, inner).
touches(c, x, outer).  knob(none).
"""


def test_c4_the_window_of_a_convolution_has_its_halo(atoms):
    found = atoms(CONVOLUTION, "core/s1_tensorize", "core/s1_roles", "core/c4_stage_fuse")
    assert "constraint(c4,width(x,0,outer),sum(width(x,0,outer),-2))" in found  # 1 - (2 + 1)
    assert of(found, "part") == {
        "part(c4,width(x,0,outer),2,reach(c,h,outer))", "part(c4,width(x,0,outer),1,reach(c,r,outer))",
    }  # fmt: skip
    assert "factor(c4,reach(c,h,outer),tile(c,h,inner))" in found
    assert "factor(c4,reach(c,h,outer),tile(c,h,outer))" not in found


def test_c4_a_buffer_follows_the_position_of_its_copy(atoms):
    copy = """
    copy(load, c, a, global).  at(load, (root; outer)).  optional(load).  tensor(a, u8).  bytes(u8, 1). indexes(c, a,
    m).  access(c, a, 0, m, 1).  level(c, 1, outer, spatial).  level(c, 2, inner, spatial).  paddable(c, a).
    """
    found = atoms(TILES + copy, "core/c4_stage_fuse")
    assert "constraint(c4,buffer(load),select(buffer(load),position(load)))" in found
    assert {one for one in of(found, "case") if "buffer" in one} == {
        "case(c4,buffer(load),outer,footprint(a,outer))", "case(c4,buffer(load),root,nothing)",
    }  # fmt: skip
    assert {one for one in of(found, "case") if "exists" in one} == {
        "case(c4,exists(load),outer,size(1))", "case(c4,exists(load),root,waste(a))",
    }  # fmt: skip


def test_c5_adds_up_everything_alive_in_a_memory(atoms):
    facts = "capacity(c, near, outer, 1000).  alive(c, near, outer, (footprint(a, outer); footprint(b, outer)))."
    found = atoms(facts, "core/c5_mem_limit")
    assert of(found, "constraint") == {"constraint(c5,fits(c,near,outer),at_most(1000))"}
    assert of(found, "part") == {
        "part(c5,fits(c,near,outer),1,footprint(a,outer))", "part(c5,fits(c,near,outer),1,footprint(b,outer))",
    }  # fmt: skip


def test_c5_an_operand_that_only_streams_through_claims_nothing(atoms):
    facts = """
    block(c).  operand(c, 0, a).  operand(c, 1, b).  result(c, c).  axis(c, m, spatial, 1).  axis(c, n, spatial, 64).
    indexes(c, a, m).  indexes(c, b, n).  scope(l2, 1048576).  pays(l2, 200).
    ordered(c, block).  candidate(inner(c, block), (m; n)).
    """
    found = atoms(facts, "dlboost/c5_caches")
    assert of(found, "capacity") == {"capacity(c,l2,task,2097000)"}
    assert of(found, "alive") == {"alive(c,l2,task,resident(a))", "alive(c,l2,task,buffer(drain(c)))"}
    assert of(found, "reused") == {"reused(c,a)"}  # one row only: no loop comes back to b


def test_c5_the_innermost_loop_decides_what_is_resident(atoms):
    facts = """
    block(c).  operand(c, 0, a).  operand(c, 1, b).  result(c, c).  axis(c, m, spatial, 64).  axis(c, n, spatial, 64).
    indexes(c, a, m).  indexes(c, b, n).  scope(l2, 1048576).  pays(l2, 200).
    ordered(c, block).  candidate(inner(c, block), (m; n)).
    """
    found = atoms(facts, "dlboost/c5_caches")
    assert of(found, "case") == {
        "case(c4,resident(a),m,footprint(a,task))", "case(c4,resident(a),n,footprint(a,block))",
        "case(c4,resident(b),m,footprint(b,block))", "case(c4,resident(b),n,footprint(b,task))",
    }  # fmt: skip


def test_c6_accumulators_leave_registers_free(atoms):
    facts = """
    block(c).  tile(c, m, register).  tile(c, n, register).  limit(vector_registers, 32).  pays(registers, 2).
    """
    found = atoms(facts, "dlboost/c6_dlboost")
    assert "constraint(c6,registers(c),at_most(30))" in found
    assert "thumb(c6,registers(c),registers)" in found
    assert of(found, "factor") == {
        "factor(c6,accumulators(c),tile(c,m,register))", "factor(c6,accumulators(c),tile(c,n,register))",
    }  # fmt: skip


def test_c6_asks_for_many_accumulators_only_where_the_extents_have_them(atoms):
    facts = "block(c).  tile(c, m, register).  pays(latency, 4).  unit(c, m, 1).  candidate(extent(c, m), {}). "
    facts += "operand(c, 0, a).  reused(c, a)."
    for extent, asked in ((1, False), (3, False), (4, True), (6, True), (37, False), (64, True)):
        found = atoms(facts.format(extent), "dlboost/c6_dlboost")
        assert ("constraint(c6,latency(c),at_most(-4))" in found) == asked, extent


def test_c6_asks_for_no_accumulators_where_an_operand_streams_through(atoms):
    facts = "block(c).  tile(c, m, register).  pays(latency, 4).  unit(c, m, 1).  candidate(extent(c, m), 64). "
    assert "streams(c)" in atoms(facts + "operand(c, 0, a).", "dlboost/c6_dlboost")
    assert not of(atoms(facts + "operand(c, 0, a).", "dlboost/c6_dlboost"), "thumb")


def test_c6_parallel_tasks_keep_the_threads_busy(atoms):
    facts = "block(c).  step(31, fuse(c, task)).  threads(8).  pays(busy, 80)."
    found = atoms(facts, "dlboost/c6_dlboost")
    assert "constraint(c6,busy(c),balanced(fused(c,task),8,80))" in found


def test_c6_does_not_ask_for_busy_threads_where_an_axis_without_reuse_makes_the_tasks(atoms):
    facts = """
    block(c).  step(31, fuse(c, task)).  threads(2).  pays(busy, 80).
    tile(c, i, task).  tile(c, j, (task; register)).
    """
    busy = "constraint(c6,busy(c),balanced(fused(c,task),2,80))"
    assert busy not in atoms(facts, "dlboost/c6_dlboost")
    assert busy in atoms(facts + "tile(c, i, register).", "dlboost/c6_dlboost")
