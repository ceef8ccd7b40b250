package android.widget;

import android.content.Context;
import android.graphics.Bitmap;
import android.view.View;

public class ImageView extends View {
    public ImageView(Context context) {
        super(context);
    }

    public void setImageBitmap(Bitmap bm) {}

    public void setAdjustViewBounds(boolean adjustViewBounds) {}
}
