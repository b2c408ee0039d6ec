use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn plan(sizes: &Sizes, machine: &Machine) -> Result<Vec<Tile>, Refusal> {
    super::plan(sizes, machine).map(|tiling| tiling.tiles)
}

fn grid(sizes: &Sizes, (rows, columns): (u32, u32), machine: &Machine) -> Result<Vec<Tile>, Refusal> {
    super::grid(sizes, Chunk { rows, columns }, machine).map(|tiling| tiling.tiles)
}

fn machine(n_nodes: u32, n_slots: u32, cache_bytes: u64, pair_ns: u64) -> Machine {
    Machine { n_nodes, n_slots, cache_bytes, pair_ns, tile_ns_max: TILE_NS_MAX }
}

/// The pairs that a plain double loop computes.
fn double_loop(sizes: &Sizes) -> BTreeSet<(u32, u32)> {
    let Rect { rows, columns } = sizes.whole();
    let all = (rows.0..rows.1).flat_map(|row| (columns.0..columns.1).map(move |column| (row, column)));
    all.filter(|(row, column)| sizes.shape() != Shape::Half || row <= column).collect()
}

/// Each pair is in exactly one tile.
fn check_tiles(sizes: &Sizes, tiles: &[Tile]) {
    let mut seen = BTreeSet::new();
    for tile in tiles {
        assert!(tile.n_pairs(sizes.shape()) > 0, "an empty tile");
        assert_eq!(tile.pairs(sizes.shape()).count() as u64, tile.n_pairs(sizes.shape()));
        for pair in tile.pairs(sizes.shape()) {
            assert!(seen.insert(pair), "{pair:?} is in two tiles");
        }
    }
    assert_eq!(seen, double_loop(sizes));
}

fn bytes_of(sizes: &Sizes, tile: &Tile, a: &[u64], b: &[u64]) -> u64 {
    let of = |item: &Item| match item {
        Item::A(n) => a[*n as usize],
        Item::B(n) => b[*n as usize],
    };
    tile.items(sizes.shape()).iter().map(of).sum()
}

#[test]
fn four_slots_share_the_pairs_of_one_set_by_their_items() {
    let sizes = Sizes::own(&[12_000_000; 40], false);
    let tiling = super::plan(&sizes, &machine(4, 1, 481 << 20, PAIR_NS_ASSUMED)).unwrap();
    let tiles = &tiling.tiles;
    check_tiles(&sizes, tiles);
    let items = |tile: &Tile| tile.items(Shape::Own);
    // No two openings read the same item.
    let n_openings = tiling.n_of.opening;
    let opened: Vec<Item> = tiles[..n_openings].iter().flat_map(items).collect();
    assert!(n_openings >= 3 && opened.len() >= 28, "{n_openings} openings read {} items", opened.len());
    assert_eq!(opened.iter().collect::<BTreeSet<_>>().len(), opened.len());
    // What all nodes read together; with the four quarters of the whole matrix it would be 20 + 40 + 40 + 20.
    let half = sizes.folded();
    let blocks = divide(&half, half.whole(), 4);
    let blocks: Vec<Vec<Item>> = blocks.into_iter().map(|block| block.items(Shape::Own).collect()).collect();
    let read = |block: &Vec<Item>| block.iter().collect::<BTreeSet<_>>().len();
    assert_eq!(blocks.iter().map(read).sum::<usize>(), 100);
    for tile in tiles {
        let is_within = |block: &Vec<Item>| items(tile).iter().all(|item| block.contains(item));
        assert!(blocks.iter().any(is_within), "a tile reads what no block reads");
    }
}

#[test]
fn small_tiles_come_last_and_have_a_lower_priority() {
    let sizes = Sizes::two(&[1; 40], &[1; 40]);
    let tiling = super::plan(&sizes, &machine(4, 1, 1 << 30, PAIR_NS_ASSUMED)).unwrap();
    let Kinds { opening, middle, block, late, small } = tiling.n_of;
    assert_eq!((opening, middle, block, late), (4, 0, 4, 0));
    assert_eq!(opening + block + small, tiling.tiles.len());
    let priorities: Vec<i32> = (0..tiling.tiles.len()).map(|n| tiling.priority(n)).collect();
    assert!(priorities[..4].iter().all(|p| *p == 2) && priorities[4..8].iter().all(|p| *p == 0));
    assert!(priorities[8..].iter().all(|p| *p == -2));
    let pairs = |tile: &Tile| tile.n_pairs(Shape::Two);
    assert!(tiling.tiles[8..].iter().map(pairs).max() < tiling.tiles[4..8].iter().map(pairs).min());
    let grid = super::grid(&sizes, Chunk { rows: 10, columns: 10 }, &machine(4, 1, 1 << 30, 1)).unwrap();
    assert_eq!((grid.n_of.block, grid.tiles.len(), grid.priority(15)), (16, 16, 0));
}

#[test]
fn one_slot_has_one_tile() {
    let sizes = Sizes::two(&[1; 10], &[1; 7]);
    let tiles = plan(&sizes, &machine(1, 1, 1 << 30, 1_000_000)).unwrap();
    assert_eq!(tiles, [Tile { rects: vec![Rect { rows: (0, 10), columns: (0, 7) }] }]);
}

#[test]
fn a_prime_number_of_slots_gets_equal_blocks() {
    let sizes = Sizes::two(&[1000; 100], &[1000; 100]);
    let tiles = plan(&sizes, &machine(7, 1, 1 << 30, 1_000_000)).unwrap();
    check_tiles(&sizes, &tiles);
    let tiling = super::plan(&sizes, &machine(7, 1, 1 << 30, 1_000_000)).unwrap();
    let Kinds { opening, middle, block, .. } = tiling.n_of;
    assert_eq!((middle, block), (0, 7));
    let n_all = sizes.whole().n_pairs(Shape::Two) as f64;
    let share =
        |tiles: &[Tile]| tiles.iter().map(|tile| tile.n_pairs(Shape::Two)).sum::<u64>() as f64 / n_all;
    // A quarter of each block is kept back, and a part is its opening.
    for tile in &tiles[opening..opening + block] {
        let of_slot = 7.0 * share(std::slice::from_ref(tile));
        assert!((0.5..0.8).contains(&of_slot), "a block has {of_slot} of its share");
    }
    let all = share(&tiles[..opening + block]);
    assert!((0.72..0.78).contains(&all), "all blocks have {all} of the pairs");
}

#[test]
fn long_programs_and_many_pairs_make_many_tiles() {
    let sizes = Sizes::two(&[1; 1000], &[1; 1000]);
    let hour = 3_600_000_000_000;
    let tiles = plan(&sizes, &machine(2, 1, 1 << 30, hour)).unwrap();
    // A tile of one pair would be a million tasks that read two million names: the queue is the bound.
    let read: usize = tiles.iter().map(|tile| tile.items(Shape::Two).len()).sum();
    assert!(read < 700_000, "{read}");
    let vast = Sizes::two(&[1; 10_000], &[1; 10_000]);
    let tiles = plan(&vast, &machine(4, 2, 1 << 30, 1_000_000)).unwrap();
    let n_pairs: u64 = tiles.iter().map(|tile| tile.n_pairs(Shape::Two)).sum();
    assert_eq!(n_pairs, 100_000_000);
    let read: usize = tiles.iter().map(|tile| tile.items(Shape::Two).len()).sum();
    assert!(read < 700_000, "{read}");
    // Nearly all tiles read one of a few numbers of items, so they share templates.
    let n_shapes = tiles.iter().map(|tile| tile.items(Shape::Two).len()).collect::<BTreeSet<_>>().len();
    assert!(n_shapes * 5 < tiles.len(), "{n_shapes} of {}", tiles.len());
    assert!(tiles.iter().all(|tile| tile.n_pairs(Shape::Two) <= 450_000));
}

#[test]
fn what_cannot_be_planned_is_refused() {
    let machine = machine(2, 1, 100, 1_000_000);
    assert_eq!(plan(&Sizes::two(&[], &[1]), &machine), Err(Refusal::Empty { is_first: true }));
    assert_eq!(plan(&Sizes::two(&[1], &[]), &machine), Err(Refusal::Empty { is_first: false }));
    assert_eq!(plan(&Sizes::own(&[], true), &machine), Err(Refusal::Empty { is_first: true }));
    let refused = plan(&Sizes::two(&[10, 60], &[50]), &machine).unwrap_err();
    assert_eq!(refused, Refusal::TooLarge { row: 1, column: 0, bytes: 110, cache_bytes: 100 });
    let refused = grid(&Sizes::two(&[10; 8], &[10; 8]), (8, 8), &machine).unwrap_err();
    assert_eq!(refused, Refusal::ChunkTooLarge { bytes: 160, cache_bytes: 100 });
}

#[test]
fn a_grid_has_the_chunk_size_that_was_given() {
    let sizes = Sizes::two(&[1; 5], &[1; 3]);
    let tiles = grid(&sizes, (2, 2), &machine(1, 1, 100, 1)).unwrap();
    check_tiles(&sizes, &tiles);
    assert_eq!(tiles.len(), 6);
    assert_eq!(tiles[5].rects, [Rect { rows: (4, 5), columns: (2, 3) }]);
    let tiles = grid(&sizes, (1, 3), &machine(1, 1, 100, 1)).unwrap();
    check_tiles(&sizes, &tiles);
    assert_eq!(tiles.len(), 5);
    assert_eq!(tiles[4].rects, [Rect { rows: (4, 5), columns: (0, 3) }]);
}

proptest! {
    #[test]
    fn tiles_are_a_double_loop_and_fit(
        a in prop::collection::vec(0u64..50, 1..40),
        b in prop::collection::vec(0u64..50, 1..40),
        kind in 0u8..3,
        (n_nodes, n_slots) in (1u32..9, 1u32..4),
        cache_bytes in 60u64..4000,
        pair_ns in prop::sample::select(vec![0, 1_000_000, 100_000_000, 400_000_000_000]),
        chunk in (1u32..9, 1u32..9),
    ) {
        let sizes = match kind {
            0 => Sizes::two(&a, &b),
            1 => Sizes::own(&a, false),
            _ => Sizes::own(&a, true),
        };
        let machine = machine(n_nodes, n_slots, cache_bytes, pair_ns);
        match plan(&sizes, &machine) {
            Ok(tiles) => {
                check_tiles(&sizes, &tiles);
                for tile in &tiles {
                    let bytes = bytes_of(&sizes, tile, &a, &b);
                    let mut pairs = tile.pairs(sizes.shape()).map(|(i, j)| (i.min(j), i.max(j)));
                    let first = pairs.next().expect("no tile is empty");
                    let is_pair = sizes.shape() != Shape::Two && pairs.all(|pair| pair == first)
                        || tile.n_pairs(sizes.shape()) == 1;
                    let limit = if is_pair { cache_bytes } else { machine.tile_bytes_max(true) };
                    prop_assert!(bytes <= limit, "{bytes} of {limit}");
                }
                prop_assert_eq!(plan(&sizes, &machine), Ok(tiles));
            }
            Err(Refusal::TooLarge { row, column, bytes, .. }) => {
                let pair = Rect { rows: (row, row + 1), columns: (column, column + 1) };
                prop_assert!(bytes > cache_bytes && sizes.bytes(pair) == bytes);
            }
            Err(other) => prop_assert!(false, "{other:?}"),
        }
        if let Ok(tiles) = grid(&sizes, chunk, &machine) {
            check_tiles(&sizes, &tiles);
        }
    }

    #[test]
    fn half_of_a_matrix_unfolds_to_the_pairs_in_both_orders(rect in prop::array::uniform4(0u32..12)) {
        let rect = Rect { rows: (rect[0], rect[1].max(rect[0])), columns: (rect[2], rect[3].max(rect[2])) };
        let rect = rect.trimmed(Shape::Half);
        let expected: BTreeSet<(u32, u32)> =
            rect.pairs(Shape::Half).flat_map(|(row, column)| [(row, column), (column, row)]).collect();
        let unfolded: Vec<(u32, u32)> =
            rect.unfolded().into_iter().flat_map(|part| part.pairs(Shape::Own)).collect();
        prop_assert_eq!(unfolded.len(), expected.len());
        prop_assert_eq!(unfolded.into_iter().collect::<BTreeSet<_>>(), expected);
    }

    #[test]
    fn pairs_are_counted_as_they_are_listed(rect in prop::array::uniform4(0u32..12), half in any::<bool>()) {
        let rect = Rect { rows: (rect[0], rect[1].max(rect[0])), columns: (rect[2], rect[3].max(rect[2])) };
        let shape = if half { Shape::Half } else { Shape::Own };
        prop_assert_eq!(rect.pairs(shape).count() as u64, rect.n_pairs(shape));
        let trimmed = rect.trimmed(shape);
        prop_assert!(rect.pairs(shape).eq(trimmed.pairs(shape)));
    }
}
