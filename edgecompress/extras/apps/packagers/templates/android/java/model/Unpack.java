package ai.edgecompress.model;

import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.zip.DataFormatException;
import java.util.zip.Inflater;

/** A file that `edgecompress pack` wrote, unpacked: segments of byte planes and codebooks, through deflate. */
final class Unpack {
    private static final int MAGIC = 0x31504345; // "ECP1"
    private static final int MOST = 4 << 20; // bytes of a segment
    private static final int PLANES = 0;
    private static final int SPARSE = 1;
    private static final int CODEBOOK = 2;

    private final DataInputStream in;
    private final Inflater inflater = new Inflater(true);

    private Unpack(InputStream packed) {
        in = new DataInputStream(packed);
    }

    /** Writes the file that was packed. Throws IOException for a damaged one; never writes more than its size. */
    static void write(InputStream packed, OutputStream out) throws IOException {
        Unpack unpack = new Unpack(packed);
        try {
            unpack.file(out);
        } catch (DataFormatException | EOFException damaged) {
            throw new IOException("the packed model is damaged", damaged);
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible); // every Java has SHA-256
        } finally {
            unpack.inflater.end();
        }
    }

    private void file(OutputStream out) throws IOException, DataFormatException, NoSuchAlgorithmException {
        require((int) number(4) == MAGIC);
        long left = number(4);
        byte[] wanted = new byte[32];
        in.readFully(wanted);
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        while (left > 0) {
            byte[] piece = segment(left);
            digest.update(piece);
            out.write(piece);
            left -= piece.length;
        }
        require(in.read() < 0 && MessageDigest.isEqual(digest.digest(), wanted));
    }

    private byte[] segment(long left) throws IOException, DataFormatException {
        int form = (int) number(1);
        int width = (int) number(1);
        int values = (int) number(2);
        long count = number(4);
        require(form <= CODEBOOK && (width == 1 || width == 2 || width == 4));
        require(count > 0 && count <= Math.min(left, MOST) && (form == PLANES || count % width == 0));
        if (form == PLANES) {
            return planes((int) count, width);
        }
        byte[] found = new byte[(int) count];
        int elements = found.length / width;
        byte[] mask = stream((elements + 7) / 8);
        int set = 0;
        for (int i = 0; i < elements; i++) {
            set += kept(mask, i);
        }
        byte[] indices = form == SPARSE ? null : stream(set);
        byte[] book = form == SPARSE ? planes(set * width, width) : stream(values * width);
        for (int i = 0, k = 0; i < elements; i++) {
            if (kept(mask, i) != 0) {
                int from = (indices == null ? k : indices[k] & 255) * width;
                require(from < book.length);
                System.arraycopy(book, from, found, i * width, width);
                k++;
            }
        }
        return found;
    }

    private static int kept(byte[] mask, int i) {
        return mask[i >> 3] >> (7 - (i & 7)) & 1;
    }

    /** So many bytes out of their planes. */
    private byte[] planes(int count, int width) throws IOException, DataFormatException {
        byte[] found = new byte[count];
        for (int plane = 0; plane < width; plane++) {
            byte[] bytes = stream(Math.max(0, (count - plane + width - 1) / width));
            for (int i = 0; i < bytes.length; i++) {
                found[plane + i * width] = bytes[i];
            }
        }
        return found;
    }

    /** The next stream, which inflates to so many bytes. */
    private byte[] stream(int count) throws IOException, DataFormatException {
        long length = number(4);
        require(length <= 2 * MOST);
        byte[] packed = new byte[(int) length + 1]; // the Inflater asks for a byte behind raw deflate
        in.readFully(packed, 0, (int) length);
        inflater.reset();
        inflater.setInput(packed);
        byte[] found = new byte[count];
        int done = 0;
        while (done < count && !inflater.finished() && !inflater.needsInput()) {
            done += inflater.inflate(found, done, count - done);
        }
        require(done == count && inflater.inflate(new byte[1]) == 0 && inflater.finished());
        return found;
    }

    /** The next number of so many bytes, the lowest first. */
    private long number(int bytes) throws IOException {
        long found = 0;
        for (int i = 0; i < bytes; i++) {
            found |= (long) in.readUnsignedByte() << 8 * i;
        }
        return found;
    }

    private static void require(boolean sound) throws DataFormatException {
        if (!sound) {
            throw new DataFormatException("not as it was packed");
        }
    }
}
